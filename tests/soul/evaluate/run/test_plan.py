"""The plan of an evaluation: what it counts, what it assumes, and that a dry run takes and writes nothing."""

import pytest

from soul import tasks
from soul.evaluate import command as command_line
from soul.evaluate.run import plan
from soul.evaluate.run.options import RunOptions, parser
from soul.evaluate.run.settings import sample_requests
from soul.examples.command import write_sets
from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI, Text

PRICES = ["policy.price_in=1", "policy.price_out=2", "judge.price_in=3", "judge.price_out=4"]
ROWS = 5


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_AGENT_MODEL", "JUDGE_MODEL_NAME", "ACTOR_MODEL_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def data(tmp_path):
    write_sets(("hitom", "sotopia", "coser", "mirrorbench"), ROWS, tmp_path / "data")
    return tmp_path / "data"


def settings_of(data, *words):
    words = [*words, "policy.model=m", "judge.api_key_env=none", "--data", str(data)]
    return command_line.settings_of(RunOptions.from_arguments(parser("test", None).parse_intermixed_args(words)))


def planned(data, *words):
    settings = settings_of(data, *words)
    return plan.plan(settings, sample_requests(settings))


def calls(one, role):
    return sum(load.calls for load in one.loads if load.role == role)


def by_section(loads):
    return {load.section: load for load in loads}


def test_calls_are_counted_by_role_and_set(data):
    hitom, sotopia, coser = planned(data, "hitom", "sotopia", "coser", "--limit", "3", "--n", "2").sets
    assert (hitom.rows, hitom.samples) == (3, 6)
    assert {load.section: load.calls for load in hitom.loads} == {"policy": 6}
    assert [calls(sotopia, role) for role in ("policy", "partner", "judge")] == [60, 60, 6]
    assert [plan.set_cells(one)[3] for one in (sotopia, hitom, coser)] == ["gpt-5-nano", "by rule", "gpt-5.4"]
    assert "judge.by_task.coser" in by_section(coser.loads)
    assert calls(coser, "environment") == 6 * tasks.load("coser").calls_per_episode["environment"]


def test_tokens_of_a_one_turn_task_are_its_prompts_and_an_answer(data):
    settings = settings_of(data, "hitom")
    (hitom,) = plan.plan(settings, sample_requests(settings)).sets
    characters = sum(len(m["content"]) for i in sample_requests(settings) for m in i.row.task.prompt(i.row.row))
    load = hitom.loads[0]
    assert load.tokens_in == pytest.approx(characters / plan.CHARS_PER_TOKEN)
    assert load.tokens_out == ROWS * plan.ANSWER_TOKENS


def test_a_dialogue_reads_what_was_said_before_again(data):
    (sotopia,) = planned(data, "sotopia").sets
    prompt = sum(
        len(m["content"]) for i in sample_requests(settings_of(data, "sotopia")) for m in i.row.task.prompt(i.row.row)
    ) / (plan.CHARS_PER_TOKEN * ROWS)
    # Turn k of the policy reads 2 (k - 1) turns: 0 + 2 + ... + 18 over ten turns.
    assert sotopia.loads[0].tokens_in == pytest.approx(ROWS * (10 * prompt + 90 * plan.TURN_TOKENS))


def reply(request):
    return Text("<answer>B</answer>") if request.body["model"] == "m" else answer(request)


def words(fake, data, out, *more):
    where = [f"policy.base_url={fake.url}", f"judge.base_url={fake.url}", "judge.api_key_env=none"]
    return ["policy.model=m", *where, "--data", str(data), "--out", str(out), *more]


def test_a_dry_run_counts_what_is_there_already(data, tmp_path, capsys):
    with FakeOpenAI(reply) as fake:
        assert command_line.main(words(fake, data, tmp_path / "out", "hitom", "--limit", "2")) == 0
        before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
        capsys.readouterr()
        assert command_line.main(words(fake, data, tmp_path / "out", "hitom", "--dry-run")) == 0
        assert command_line.main(words(fake, data, tmp_path / "out", "hitom", "--dry-run", "--limit", "2")) == 0
    printed = capsys.readouterr().out
    assert f"{ROWS - 2} samples to run" in printed and "2 samples are finished already" in printed
    assert "0 samples to run" in printed
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_a_budget_over_a_judge_without_a_price_is_refused_before_the_first_sample(data, tmp_path, capsys):
    with FakeOpenAI(reply) as fake:
        given = words(
            fake, data, tmp_path / "out", "coser", "judge.budget_usd=1", "judge.price_in=1", "judge.price_out=1"
        )
        assert command_line.main(given) == 2
    assert "Without a price: gpt-5.4" in capsys.readouterr().err and not (tmp_path / "out").exists()
