"""ParaToMi task files: paraphrased ToMi stories (.txt), or the rows of Percept-ToMi (.csv), which are for evaluation.

    python -m data.paratomi convert train.txt --out data/sim_rl_data/paratomi_rl_train.parquet
    python -m data.paratomi convert Percept-ToMi.csv --out data/sim_eval_data/paratomi_val.parquet
    python -m data.paratomi convert test.txt --out data/sim_eval_data/paratomi_paraphrased_val.parquet

Sources: github.com/skywalker023/thought-tracing, data/paraphrased_tomi (MIT; the stories derive from ToMi,
CC BY-NC 4.0: not for commercial use), and github.com/chanijung/PercepToM, dataset/Percept-ToMi.csv (no
licence).

Train on `train.txt` only: it shares no story with Percept-ToMi or with `test.txt` of the same folder, the paraphrased
test. docs/tasks/paratomi.md says how the two tests differ.

The .trace file beside a .txt file names each question's type. Without it the type is read from the question's wording
and does not say whether the belief is false ("first_order" instead of "first_order_tom").

The .txt file has no candidate answers. They are derived: every container and every room that the story
names, by ToMi's fixed lists of both. Percept-ToMi's own candidates also include things that characters
like, which are never answers. The derived candidates are shuffled, because the order of mention would
reveal answers.
"""

import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from data.builder_cli import Builder, Rows, argument
from data.reading import read_csv, read_text, text_list
from data.rows import Record
from soul.tasks.paratomi import places

# Words that tell the types apart, in this order: questions of the second order also say "will".
_WORDINGS = {
    " think that ": "second_order",
    " will ": "first_order",
    " at the beginning": "memory",
    " really": "reality",
}


def convert(path: str | Path, seed: int = 0) -> list[Record]:
    """The questions of a ParaToMi .txt or a Percept-ToMi .csv file as `extra_info` dicts, in order.

    `seed` orders the derived candidates of a .txt file.
    """
    path = Path(path)
    return _convert_csv(path) if path.suffix == ".csv" else _convert_txt(path, seed)


def _convert_txt(path: Path, seed: int) -> list[Record]:
    blocks = _blocks(path)
    records = []
    for index, (sentences, raw_type) in enumerate(zip(blocks, _question_types(path, blocks), strict=True)):
        question, answer = sentences[-1].split("\t")[:2]
        story = sentences[:-1]
        candidates = places(story)
        random.Random(f"paratomi:{seed}:{index}").shuffle(candidates)
        records.append(_record(index, story, question, candidates, answer, raw_type))
    return records


def _question_types(path: Path, blocks: Sequence[Sequence[str]]) -> list[str]:
    """The type of each block's question: from the .trace file, or from the wording where there is none."""
    trace_path = path.with_suffix(".trace")
    if not trace_path.is_file():
        questions = [sentences[-1].split("\t")[0] for sentences in blocks]
        return [next((kind for words, kind in _WORDINGS.items() if words in asked), "") for asked in questions]
    traces = [line for line in read_text(trace_path).splitlines() if line.strip()]
    if len(traces) != len(blocks):
        raise ValueError(
            f"{trace_path}: {len(traces)} lines for {len(blocks)} blocks in {path.name}; line i must describe "
            "block i, so take both files from the same copy"
        )
    # A trace is "event,event,...,question type,story type".
    return [trace.split(",")[-2] if "," in trace else "" for trace in traces]


def _blocks(path: Path) -> list[list[str]]:
    """The bAbI blocks without line numbers; the last line of each is "question<TAB>answer<TAB>support"."""
    blocks: list[list[str]] = []
    current: list[str] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        matched = re.fullmatch(r"(\d+) (.*\S)\s*", line)
        if not line.strip():
            continue
        if not matched or int(matched[1]) != len(current) + 1:
            raise ValueError(
                f"{path}: line {number}: expected a sentence numbered {len(current) + 1}, got {line[:60]!r}"
            )
        current.append(matched[2])
        if "\t" in matched[2]:
            blocks.append(current)
            current = []
    if current:
        raise ValueError(f"{path}: the last block has no question; the file seems to be cut off")
    return blocks


def _convert_csv(path: Path) -> list[Record]:
    records = []
    for index, (where, raw) in enumerate(read_csv(path)):
        story, cands = (text_list(where, raw, column) for column in ("story", "cands"))
        question, answer, raw_type = (raw.get(column) or "" for column in ("question", "answer", "qType"))
        records.append(_record(index, story, question, cands, answer, raw_type))
    return records


def _record(index: int, story: list[str], question: str, cands: list[str], answer: str, raw_type: str) -> Record:
    return {
        "index": index,
        "story": story,
        "question": question.strip(),
        "cands": cands,
        "correct_answer": answer,
        # Without the number in "first_order_0_no_tom", which only says which of the two agents is asked about.
        "qType": re.sub(r"_[01]_", "_", raw_type),
    }


BUILDER = Builder(
    "data.paratomi",
    __doc__,
    lambda args: Rows(convert(args.source, args.seed)),
    options=[argument("source", type=Path, metavar="SRC.txt|SRC.csv")],
)

if __name__ == "__main__":
    sys.exit(BUILDER.main())
