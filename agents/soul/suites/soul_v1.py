"""SOUL, version 1: the benchmark's 27 evaluation sets, the paper's ten, the order of the table, the published columns.

This file is frozen: registering a task does not change it, and a new set belongs in a new version. The published
numbers are in `published.json`; `soul.suites.published` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from soul.suites.published import Column, column, rows


class EvaluationSet(NamedTuple):
    """One evaluation set: the task of its rows (`data_source`) and its parquet file in `sim_eval_data/`."""

    task: str
    file: str


SETS: Mapping[str, EvaluationSet] = MappingProxyType(
    {
        "sotopia": EvaluationSet("sotopia", "sotopia_hard_val"),
        "coser": EvaluationSet("coser", "coser_val"),
        "lifechoices": EvaluationSet("lifechoices", "lifechoices_val"),
        "userllm": EvaluationSet("userllm", "userllm_val"),
        "mirrorbench": EvaluationSet("mirrorbench", "mirrorbench_val"),
        "fantom": EvaluationSet("fantom", "fantom_val"),
        "hitom": EvaluationSet("hitom", "hitom_val"),
        "paratomi": EvaluationSet("paratomi", "paratomi_val"),
        "mistakes": EvaluationSet("mistakes", "mistakes_val"),
        "twinvoice": EvaluationSet("twinvoice", "twinvoice_val"),
        "social_r1": EvaluationSet("social_r1", "social_r1_val"),
        "behaviorchain": EvaluationSet("behavior_chain", "behaviorchain_val"),
        "sim_math": EvaluationSet("sim_arena_math", "sim_math_val"),
        "sim_doc": EvaluationSet("sim_arena_doc", "sim_doc_val"),
        "humanual_book": EvaluationSet("humanual-book", "humanual_book_val"),
        "humanual_chat": EvaluationSet("humanual-chat", "humanual_chat_val"),
        "humanual_email": EvaluationSet("humanual-email", "humanual_email_val"),
        "humanual_news": EvaluationSet("humanual-news", "humanual_news_val"),
        "humanual_opinion": EvaluationSet("humanual-opinion", "humanual_opinion_val"),
        "humanual_politics": EvaluationSet("humanual-politics", "humanual_politics_val"),
        "socsci210": EvaluationSet("socsci210", "socsci210_val"),
        "humanllm": EvaluationSet("humanllm", "humanllm_val"),
        "alignx_demo": EvaluationSet("alignx_demo", "alignx_demo_val"),
        "alignx_pair": EvaluationSet("alignx_pair", "alignx_pair_val"),
        "alignx_ugc": EvaluationSet("alignx_ugc", "alignx_ugc_val"),
        "alignx_arbitrary": EvaluationSet("alignx_arbitrary", "alignx_arbitrary_val"),
        "alignx_history16": EvaluationSet("alignx_history16", "alignx_history16_val"),
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
