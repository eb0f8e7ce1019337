"""SOUL from Python, inside a running event loop: every number is that of the command line's files."""

import asyncio
import json
import runpy
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from soul import api, examples
from soul.errors import BadRow, BadSettings, SessionError
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.testing.replies import ServerError

ROOT = Path(__file__).resolve().parents[2]


def right(row):
    return examples.load(row.task.name).player("oracle", row.row)


def wrong(row):
    return examples.load(row.task.name).player("contrarian", row.row)


@pytest.mark.parametrize("name", ["hitom", "sotopia", "humanual-book"])
def test_a_row_is_played_and_refined(name) -> None:
    async def policy(messages):  # functions may be coroutines
        return right(row)(messages)

    row = api.rows(name)[0]
    session = asyncio.run(api.play(row, policy, judge=answer, refine=True))
    assert session.draft.verdict and session.feedback and session.refined and session.refined.verdict
    assert session.draft.verdict.reward == session.refined.verdict.reward > 0


def test_an_answer_is_scored_criticised_and_refined() -> None:
    async def inside_a_loop():
        row = api.rows("hitom")[0]
        good, bad = right(row)([]), wrong(row)([])
        scores = [(await api.score(row, text, judge=answer)).reward for text in (good, bad, "")]
        critique = await api.critique(row, bad, judge=answer)
        heard = []
        refined = await api.refine(row, lambda messages: heard.append(messages) or good, critique, judge=answer)
        return scores, critique, heard, refined

    scores, critique, heard, refined = asyncio.run(inside_a_loop())
    assert scores == [1.0, 0.0, 0.0]
    assert critique in heard[0][-1]["content"] and refined.verdict.reward == 1.0


def test_failures_are_typed() -> None:
    row = api.rows("hitom")[0]
    with pytest.raises(SessionError):
        asyncio.run(api.critique(row, "B", judge=lambda request: ServerError()))
    with pytest.raises(BadSettings, match="several turns"):
        asyncio.run(api.score(api.rows("sotopia")[0], "Hello.", judge=answer))


def test_an_evaluation_is_that_of_the_command(tmp_path) -> None:
    write(["hitom"], 12, tmp_path / "hitom.parquet")
    rows = api.rows("hitom", tmp_path / "hitom.parquet")
    by_prompt = {row.task.prompt(row.row)[-1]["content"]: row for row in rows}

    async def policy(messages):  # right on even rows; as a client of this loop, it works in no other one
        assert asyncio.get_running_loop() is loops[0]
        row = by_prompt[messages[-1]["content"]]
        return (wrong if row.row.index % 2 else right)(row)(messages)

    async def inside_a_loop():
        loops.append(asyncio.get_running_loop())
        return await api.evaluate(policy, [str(tmp_path / "hitom.parquet")], judge=answer, out=tmp_path / "out")

    loops: list[asyncio.AbstractEventLoop] = []
    evaluation = asyncio.run(inside_a_loop())
    saved = json.loads((evaluation.folder / "results.json").read_text())["sets"]
    (name,) = saved
    assert saved[name]["mean"] == 0.5
    assert evaluation.frame().loc[name, "mean"] == saved[name]["mean"]
    assert evaluation.report.is_file() and name in evaluation.table()
    with pytest.raises(BadRow, match="has no row of the task lifechoices"):
        api.rows("lifechoices", tmp_path / "hitom.parquet")


def test_an_error_of_the_function_is_raised(tmp_path) -> None:
    write(["hitom"], 2, tmp_path / "hitom.parquet")

    def policy(messages):
        raise LookupError("my own bug")

    with pytest.raises(LookupError, match="my own bug"):
        asyncio.run(api.evaluate(policy, [str(tmp_path / "hitom.parquet")], judge=answer, out=tmp_path / "out"))


def test_the_notebook_of_the_page_runs_from_top_to_bottom(tmp_path) -> None:
    page = runpy.run_path(str(ROOT / "docs" / "notebook.py"))["notebook"]()
    notebook = nbformat.read(ROOT / "examples" / "soul_api.ipynb", as_version=4)
    assert notebook == page, "run: python docs/notebook.py"
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    assert "hitom" in shown and "lifechoices" in shown and list(tmp_path.glob("outputs/*/report.html"))
