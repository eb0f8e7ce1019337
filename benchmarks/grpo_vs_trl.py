"""A step of GRPO beside TRL's: the same model, prompts, answer lengths, group size and update.

    python -m benchmarks.grpo_vs_trl --trl-python TRL_VENV/bin/python --rows fantom.parquet [--response 32]
        [--model FOLDER] [--launched]

The model is that of FOLDER, in Hugging Face's form; without `--model` it is the demo's tiny one. Both sample with
transformers in float32 on one core, every answer as long as `--response`, and train one update of all groups, without
KL. The reward is a rule, so neither waits for a judge; agent loop, Ray and vLLM stay out of it. Ours samples with
`one_process_sampler.py` and updates with `one_process_update.py`: our loss and batches on verl's FSDP2 engine, each
group as a tree where a run would. TRL (`trl_grpo_contender.py`) runs in an interpreter of its own and gets the better
of several micro-batch sizes. The programs run in turn, `--rounds` times; the first step of each is not counted. Seconds
are CPU seconds of one process with one thread, which a busy machine does not change much.

Both must take the same update: ours also trains on the sequences that TRL sampled, and the gradient norms of each step
may differ by 1e-3. Goal: TRL's seconds a step over ours at least 1.5.

With `--launched`, ours is what a user starts: `bash recipe/ditto/run_rl.sh` with its defaults, through Ray, FSDP2 and
vLLM, on all cores, and TRL has all cores too. All weights are trained, and groups without a learning signal as well, so
that both sides do the same work; `data.max_prompt_length` fits the rows. Our answers end at the model's end tokens,
TRL's go on to the last token. Wall seconds, on a machine that does nothing else. A third column is DITTO, with as many
drafts, its feedback from a local test double that answers at once.
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
TOLERANCE = 1e-3  # relative, of a gradient norm
MICRO_BATCHES = (8, 32)  # sequences of TRL's forward passes
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


def measure(folder: Path, args: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """CPU seconds of every counted step, by program and phase. The largest difference of gradient norms is printed."""
    seconds: dict[str, dict[str, list[float]]] = {}
    programs = {
        f"TRL, micro-batches of {size}": [
            *(str(args.trl_python), str(ROOT / "benchmarks" / "trl_grpo_contender.py"), str(folder), str(size))
        ]
        for size in MICRO_BATCHES
    }
    programs["ours"] = [sys.executable, "-m", "benchmarks.grpo_contender", str(folder)]
    for number in range(args.rounds):
        for name, command in programs.items():
            console.print(f"round {number + 1} of {args.rounds}: {name}")
            output_of(command, {"OMP_NUM_THREADS": "1", "VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT)})
            result = json.loads((folder / "result.json").read_text())
            for phase, values in result["seconds"].items():
                seconds.setdefault(name, {}).setdefault(phase, []).extend(values[1:])
            if name == "ours":
                console.print("  ours computes " + ("each group as a tree" if result["as_trees"] else "every row"))
                compare(result["norms"], json.loads((folder / "sequences.json").read_text())["norms"])
    return seconds


def measure_launched(folder: Path, rows: Path, args: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Wall seconds of every counted step, by program and phase."""
    seconds: dict[str, dict[str, list[float]]] = {}
    trl = [str(args.trl_python), str(ROOT / "benchmarks" / "trl_grpo_contender.py"), str(folder), str(MICRO_BATCHES[0])]
    for number in range(args.rounds):
        console.print(f"round {number + 1} of {args.rounds}: TRL")
        output_of([*trl, "--all-cores"], {"PYTHONPATH": str(ROOT)})
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


def compare(ours: Sequence[float], theirs: Sequence[float]) -> None:
    """Compare the gradient norms of the same updates.

    Raises:
        RunFailed: they differ, so the programs do not take the same update.
    """
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    console.print(f"  gradient norms of {len(ours)} updates differ by at most {worst:.1e}")
    if not worst <= TOLERANCE:
        raise RunFailed(f"The updates differ: gradient norms {ours} and {theirs}.")


def show(title: str, seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Print the medians, and how many times ours the best of TRL's steps takes."""
    medians = {name: {phase: statistics.median(of[phase]) for phase in PHASES} for name, of in seconds.items()}
    best = min((name for name in medians if name.startswith("TRL")), key=lambda name: medians[name]["step"])
    launched = "DITTO" in medians
    table = new_table(title, "wall seconds" if launched else "CPU seconds", *medians, "TRL / ours")
    for phase in PHASES:
        ratio = medians[best][phase] / medians["ours"][phase]
        table.add_row(phase, *(f"{of[phase]:.2f}" for of in medians.values()), f"{ratio:.2f}")
    console.print(table)
    if launched:
        ratio = medians["DITTO"]["step"] / medians["ours"]["step"]
        console.print(f"DITTO / GRPO: {ratio:.2f}. Goals: TRL / ours at least 2 (short) or 3 (long prompts), this 1.6.")
        return
    share = medians["ours"]["sampling"] / medians["ours"]["step"]
    console.print(f"Sampling is {share:.0%} of our step. Goal: at least 1.5.")


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
    parser.add_argument("--prompt-length", type=positive_int, default=512, help="of --launched: tokens of a prompt")
    parser.add_argument("--launched", action="store_true", help="compare the run that the launcher starts")
    args = parser.parse_args(arguments)
    for rows in args.rows:
        with tempfile.TemporaryDirectory() as name:
            prepare(Path(name), rows, args)
            seconds = measure_launched(Path(name), rows, args) if args.launched else measure(Path(name), args)
            sampled = json.loads((Path(name) / "sequences.json").read_text())["steps"]
        length = statistics.fmean(len(prompt) for step in sampled for prompt, _ in step)
        shape = f"{args.prompts} prompts of {length:.0f} tokens x {args.group} answers of {args.response}"
        show(f"{rows.stem}: a step of {shape}", seconds)


if __name__ == "__main__":
    sys.exit(main())
