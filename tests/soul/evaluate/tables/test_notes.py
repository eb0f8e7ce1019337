"""What stands beside a table: who judged which set, which sets are missing, and where the paper asked another model."""

from soul.evaluate.numbers.results import summarise
from soul.evaluate.outputs import write_outputs
from soul.evaluate.tables import run_table
from soul.suites import soul_v1
from tests.soul.evaluate.finished_run import ENDPOINT, finished_run
from tests.soul.evaluate.finished_samples import sample

NANO = {**ENDPOINT, "model": "gpt-5-nano"}
ROLES = {role: NANO for role in ("judge", "feedback", "partner", "environment")}
PAPERS = {"roles": ROLES, "by_task": {"coser": {**ENDPOINT, "model": "gpt-5.4"}}}


def run_of(folder, *names, **settings):
    samples = [sample(0.5, n, of=name, task=soul_v1.SETS[name].task) for name in names for n in range(2)]
    return finished_run(folder, samples, **{**PAPERS, **settings})


def noted(run):
    results = summarise(run.samples, run.sets)
    return run_table.judged_by(run, results), run_table.cautions(run, results)


def test_the_header_names_the_judge_of_each_set(tmp_path):
    (judges, others), warnings = noted(run_of(tmp_path, "hitom", "coser", "sotopia", "userllm"))
    assert judges == "Judges: gpt-5-nano (userllm, sotopia); gpt-5.4 (coser); by rule alone (hitom)."
    assert others == "Partners and environments: gpt-5-nano (sotopia, coser)."
    assert not any(warning.startswith("Warning") for warning in warnings)  # they are the paper's judges


def test_scores_of_other_judges_are_marked_beside_published_numbers(tmp_path):
    mine = {**ENDPOINT, "model": "mine"}
    _, warnings = noted(run_of(tmp_path, "hitom", "coser", "sotopia", roles={**ROLES, "judge": mine}, by_task={}))
    warning = next(each for each in warnings if each.startswith("Warning"))
    assert "coser: judge mine, not gpt-5.4" in warning and "sotopia: judge mine, not gpt-5-nano" in warning
    assert "hitom" not in warning and "environment" not in warning


def test_missing_sets_are_said_in_the_table_file(tmp_path):
    import json

    run = run_of(tmp_path, "hitom", "coser")
    chosen = json.loads((tmp_path / "chosen.json").read_text())
    (tmp_path / "chosen.json").write_text(json.dumps({**chosen, "missing": ["fantom"], "suite": "paper"}))
    run = type(run).load(tmp_path)
    write_outputs(run)
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("Judges: ") and "macro average, 2 sets" in text
    assert "Not evaluated, and in no average, because the file is missing: fantom (1 of the 3 requested sets)." in text
    assert "GRPO 8B (paper)" in text and "(card)" not in text  # the suite's columns
    assert "The suite paper takes" not in text
    (tmp_path / "chosen.json").write_text(json.dumps({**chosen, "limit": 5, "suite": "paper"}))
    warnings = noted(type(run).load(tmp_path))[1]
    assert "The suite paper takes 100 rows of each set; this run takes 5 rows." in warnings
