"""Options that cannot be: each ends as one paragraph with exit code 2, and none is accepted and ignored."""

import pytest

from soul.evaluate import __main__ as command_line
from soul.examples.__main__ import write


@pytest.fixture
def rows(tmp_path, monkeypatch):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_AGENT_MODEL", "OPENAI_AGENT_API_KEY", "JUDGE_MODEL_NAME"):
        monkeypatch.delenv(name, raising=False)
    write(["hitom"], 3, tmp_path / "hitom.parquet")
    return tmp_path / "hitom.parquet"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks.hitom=1"], "tasks.hitom=1"),
        (["tasks.hitom=1", "tasks.hitom.strict_answers=true"], "cannot have keys"),
        (["policy.model=["], "is not valid YAML"),
        (["judge.jury=[a,b"], "is not valid YAML"),
        (["policy.temperature=.nan"], "policy.temperature"),
        (["policy.temperature=-1"], "policy.temperature"),
        (["judge.by_task.sim_math.model=other"], "judge.by_task.sim_math: "),  # a set; its task is sim_arena_math
        (["judge.max_failure_rate=0.1"], "judge.max_failure_rate is for training"),
    ],
)
def test_an_option_that_cannot_be_is_one_paragraph(rows, tmp_path, capsys, words, said):
    policy = ["policy.model=m", "policy.base_url=http://127.0.0.1:1/v1", "policy.api_key_env=none"]
    assert command_line.main([str(rows), *policy, *words, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert said in printed and len(printed.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
