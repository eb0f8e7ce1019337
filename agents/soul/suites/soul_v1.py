"""SOUL, version 1: the benchmark's 27 evaluation sets, the paper's ten, the order of the table, the published columns.

This file is frozen: registering a task does not change it, and a new set belongs in a new version. The published
numbers are in `published.json`; `soul.suites.published` reads them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from soul.suites.published import Column, column, rows


class EvaluationSet(NamedTuple):
    """One evaluation set: the task of its rows (`data_source`) and its parquet file in `sim_eval_data/`."""

    task: str
    file: str


_TASKS = {  # set -> task, where the names differ
    "behaviorchain": "behavior_chain",
    "sim_math": "sim_arena_math",
    "sim_doc": "sim_arena_doc",
}
_NAMES = """
    sotopia coser lifechoices userllm mirrorbench fantom hitom paratomi mistakes twinvoice social_r1 behaviorchain
    sim_math sim_doc humanual_book humanual_chat humanual_email humanual_news humanual_opinion humanual_politics
    socsci210 humanllm alignx_demo alignx_pair alignx_ugc alignx_arbitrary alignx_history16
"""
SETS: Mapping[str, EvaluationSet] = MappingProxyType(
    {
        name: EvaluationSet(
            _TASKS.get(name, name.replace("humanual_", "humanual-")),
            "sotopia_hard_val" if name == "sotopia" else f"{name}_val",
        )
        for name in _NAMES.split()
    }
)
# The model card has one number for these five.
ALIGNX = ("alignx_demo", "alignx_pair", "alignx_ugc", "alignx_arbitrary", "alignx_history16")
# The ten tasks of the paper (section 5): it trains one model on them, with 1,024 rows of each.
PAPER = (
    *("fantom", "hitom", "paratomi", "coser", "lifechoices"),
    *("sotopia", "mistakes", "mirrorbench", "userllm", "twinvoice"),
)
PAPER_ROWS = 100  # rows that the paper samples from each of the ten for evaluation
# The sets in the order of the table, which is that of the model card, each with the card's dimension.
DIMENSIONS: Mapping[str, str] = MappingProxyType({name: row.dimension for row in rows("card") for name in row.sets})
# The columns beside a run over all sets: the base and the trained model of both sources, and the card's strongest
# proprietary one.
COLUMNS: tuple[Column, ...] = (
    *(column("card", model) for model in ("Qwen3 8B Inst", "Ditto-8B", "GPT 5.5")),
    *(column("paper", model) for model in ("Base 8B", "Ditto 8B")),
)
PAPER_COLUMNS: tuple[Column, ...] = tuple(
    column("paper", model) for model in ("GPT-5.4", "GPT-5 nano", "Base 8B", "GRPO 8B", "Ditto 8B")
)
