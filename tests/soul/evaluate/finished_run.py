"""Folders of evaluations: one written by hand, and a real one, taken over HTTP."""

import itertools
import json

from soul.evaluate.command import main
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.run_folder import EvaluationRun
from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.suites.soul_v1 import SETS
from soul.testing import FakeOpenAI, ServerError, Text

ENDPOINT = {
    "model": "gpt-judge",
    "base_url": "http://127.0.0.1:1/v1",
    "reasoning_effort": "low",
    "temperature": None,
    "max_output_tokens": None,
}
SETTINGS = {
    "policy": {**ENDPOINT, "model": "under-test", "temperature": 0.7},
    "roles": {"judge": ENDPOINT, "partner": ENDPOINT},
    "jury": [],
    "by_task": {"coser": {**ENDPOINT, "model": "gpt-large"}},
    "tasks": {},
    "deadline_s": None,
}


def finished_run(folder, samples, sets=None, n=1, asked=None, **settings):
    """A run with these samples; `asked` is how many more were asked for than are there."""
    journal = Journal(folder)
    for sample in samples:
        journal.add(sample)
    journal.close()
    keys = {name: [] for name in sets or dict.fromkeys(sample.set for sample in samples)}
    for sample in samples:
        keys[sample.set].append([sample.number, sample.sample])
    for extra in range(asked or 0):
        keys[next(iter(keys))].append([10_000 + extra, 0])
    (folder / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
    (folder / "chosen.json").write_text(json.dumps({"limit": 100, "n": n, "seed": 0, "samples": keys}))
    return EvaluationRun.load(folder)


def real_run(folder, sets=("hitom", "sotopia", "coser"), rows=4, said="<answer>B</answer>"):
    """A run of these sets against a fake endpoint, taken as a user takes it; some requests of the judges fail."""
    for name in sets:
        write([SETS[name].task], rows, folder / "data" / "sim_eval_data" / f"{SETS[name].file}.parquet")

    judged = itertools.count()

    def script(request):
        if request.body["model"] == "under-test":
            return Text(said)
        if "connection test" in request.text:  # the preflight, without which no sample is taken
            return answer(request)
        return ServerError() if next(judged) % 20 == 19 else answer(request)

    with FakeOpenAI(script) as fake:
        words = [
            f"{role}.{key}" for role in ("policy", "judge") for key in (f"base_url={fake.url}", "api_key_env=none")
        ]
        priced = ("policy.price_in=1", "policy.price_out=2")
        where = ("--data", str(folder / "data"), "--out", str(folder / "out"), "--name", "run")
        code = main([*sets, *where, "policy.model=under-test", "judge.max_attempts=1", *words, *priced])
    assert code == 0
    (found,) = (folder / "out").glob("run-*")
    return EvaluationRun.load(found)
