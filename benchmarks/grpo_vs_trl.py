"""A step of GRPO beside TRL's, as a user starts it: the same model, prompts, group size and number of updates.

    python -m benchmarks.grpo_vs_trl --trl-python TRL_VENV/bin/python --rows fantom.parquet [--model FOLDER]

The model is that of FOLDER, in Hugging Face's form; without `--model` it is the demo's tiny one. Ours is `bash
recipe/ditto/run_rl.sh` with its defaults, through Ray, FSDP2 and vLLM, on all cores; TRL's GRPOTrainer
(`trl_grpo_contender.py`) runs in an interpreter of its own and has all cores too. All weights are trained, and groups
without a learning signal as well, so that both sides do the same work; `data.max_prompt_length` fits the rows. Our
answers end at the model's end tokens, TRL's go on to the last token. The programs run in turn, `--rounds` times; the
first step of each is not counted. Wall seconds, on a machine that does nothing else. A third column is DITTO, with as
many drafts, its feedback from a local test double that answers at once.

Goals: TRL's seconds a step over ours at least 2 with short prompts and 3 with long ones; DITTO's over GRPO's at most
1.6.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.side_by_side import ROOT, console, new_table, output_of
from soul.cli.arguments import existing_file, existing_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import RunFailed
from soul.examples.endpoint import answer
from soul.rows.task_files import read_rows
from soul.testing import FakeOpenAI

LEARNING_RATE = 1e-6
MICRO_BATCH = 8  # sequences of TRL's forward passes
PHASES = ("sampling", "update", "step")


def prepare(folder: Path, rows: Path, args: argparse.Namespace) -> None:
    """Write the prompts of every step as text, and link or build the model; all rows of a file have the same task."""
    steps, count = args.steps, args.prompts
    all_rows = read_rows([str(rows)])
    if len(all_rows) < steps * count:
        raise RunFailed(f"{rows} has {len(all_rows)} rows; {steps} steps of {count} prompts need {steps * count}.")
    prompts = ["\n".join(m["content"] for m in row.task.prompt(row.row)) for row in all_rows]
    texts = prompts[: steps * count]
    if args.model:
        (folder / "model").symlink_to(args.model.resolve())
    else:
        from recipe.demo import tiny_model

        # Without line breaks, because the tokenizer makes one token of a line that many texts share.
        tiny_model.build(folder / "model", [" ".join(prompt.split()) for prompt in prompts])
    settings = {"steps": steps, "prompts": count, "group": args.group, "response": args.response, "texts": texts}
    settings["learning_rate"] = LEARNING_RATE
    (folder / "work.json").write_text(json.dumps(settings))


def measure(folder: Path, rows: Path, args: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Wall seconds of every counted step, by program and phase."""
    seconds: dict[str, dict[str, list[float]]] = {}
    trl = [str(args.trl_python), str(ROOT / "benchmarks" / "trl_grpo_contender.py"), str(folder), str(MICRO_BATCH)]
    for number in range(args.rounds):
        console.print(f"round {number + 1} of {args.rounds}: TRL")
        output_of(trl)
        found = {"TRL": json.loads((folder / "result.json").read_text())["seconds"]}
        for name, objective in (("ours", "grpo"), ("DITTO", "ditto")):
            console.print(f"round {number + 1} of {args.rounds}: {name}")
            found[name] = launch(folder / f"{objective}{number}", folder / "model", rows, objective, args)
        for name, phases in found.items():
            for phase, values in phases.items():
                seconds.setdefault(name, {}).setdefault(phase, []).extend(values[1:])
    return seconds


def launch(folder: Path, model: Path, rows: Path, objective: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Start a run as a user does, and read the wall seconds of its steps and of their phases."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    words = [
        *(f"algorithm.objective={objective}", "algorithm.skip_idle=false", "actor_rollout_ref.model.lora_rank=0"),
        *(f"data.train_batch_size={args.prompts}", f"{actor}.ppo_mini_batch_size={args.prompts}"),
        *(f"{rollout}.n={args.group}", f"{actor}.optim.lr={LEARNING_RATE}"),
        *(f"data.max_prompt_length={args.prompt_length}", f"data.max_response_length={args.response}"),
        f"data.max_turn_length={args.response}",
        *(f"trainer.total_training_steps={args.steps}", "trainer.save_freq=-1", "trainer.test_freq=-1"),
        *("trainer.val_before_train=false", "trainer.logger=[console]", "data.allow_overlap=true"),
    ]
    task = next(iter(read_rows([str(rows)]))).task.name
    with FakeOpenAI(answer) as judge:
        variables = {
            "PLATFORM": "cpu",
            "OUTPUT_DIR": str(folder),
            "EXPERIMENT_NAME": "run",
            "ACTOR_MODEL_PATH": str(model),
            "TRAIN_FILES": str(rows),
            "VAL_FILES": str(rows),
            "OPENAI_BASE_URL": judge.url,
            "OPENAI_API_KEY": "of-a-test-double",
        }
        output_of(["bash", str(ROOT / "recipe" / "ditto" / "run_rl.sh"), task, *words], variables)
    steps = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    lengths = ", ".join(f"{step['response_length/mean']:.0f}" for step in steps)
    console.print(f"  mean length of the answers in each step, in tokens: {lengths}")
    sampling, whole = ([step[f"timing_s/{name}"] for step in steps] for name in ("gen", "step"))
    return {"sampling": sampling, "update": [b - a for a, b in zip(sampling, whole, strict=True)], "step": whole}


def show(title: str, seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Print the medians, and the ratios that have a goal."""
    medians = {name: {phase: statistics.median(of[phase]) for phase in PHASES} for name, of in seconds.items()}
    table = new_table(title, "wall seconds", *medians, "TRL / ours")
    for phase in PHASES:
        ratio = medians["TRL"][phase] / medians["ours"][phase]
        table.add_row(phase, *(f"{of[phase]:.2f}" for of in medians.values()), f"{ratio:.2f}")
    console.print(table)
    ratio = medians["DITTO"]["step"] / medians["ours"]["step"]
    console.print(f"DITTO / GRPO: {ratio:.2f}. Goals: TRL / ours at least 2 (short) or 3 (long prompts), this 1.6.")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.grpo_vs_trl", description=__doc__)
    parser.add_argument("--trl-python", type=existing_file, required=True, help="an interpreter that has TRL")
    parser.add_argument("--rows", type=existing_file, nargs="+", required=True, help="task files; one table for each")
    parser.add_argument("--model", type=existing_folder, help="a pretrained model instead of the demo's tiny one")
    parser.add_argument("--prompts", type=positive_int, default=4, help="groups of a step")
    parser.add_argument("--group", type=positive_int, default=8, help="answers to a prompt")
    parser.add_argument("--response", type=positive_int, default=32, help="tokens of an answer")
    parser.add_argument("--steps", type=positive_int, default=4, help="the first one is not counted")
    parser.add_argument("--rounds", type=positive_int, default=2)
    parser.add_argument("--prompt-length", type=positive_int, default=512, help="tokens of a prompt at most")
    args = parser.parse_args(arguments)
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as name:
            prepare(Path(name), rows, args)
            seconds = measure(Path(name), rows, args)
            length = json.loads((Path(name) / "result.json").read_text())["prompt_tokens"]
        shape = f"{args.prompts} prompts of {length:.0f} tokens x {args.group} answers of {args.response}"
        show(f"{rows.stem}: a step of {shape}", seconds)


if __name__ == "__main__":
    sys.exit(main())
