"""The keys of the config's section `data` that describe the corpus: files, limits, the trained side, the cache."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sft.encode.known_sources import Role
from sft.encode.sequence import Overlong


class SftDataSettings(BaseModel):
    """The data of a supervised training. sft/config/sft.yaml describes each key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cache_dir: Path  # token ids; you may delete it between runs
    dir: Path | None = None  # folder of the shards, if train_files or val_files name none
    train_files: str | Sequence[str] | None = None
    val_files: str | Sequence[str] | None = None
    max_prompt_length: int = Field(default=16384, gt=0)
    max_response_length: int = Field(default=8192, gt=0)
    overlong: Overlong = "drop"
    bad_rows: Literal["error", "drop"] = "error"  # empty trained turns, rows that the chat template refuses
    default_train_role: Role | None = None
    last_turns_by_source: Mapping[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    document_end: str | None = None  # the token after a document; None: the tokenizer's own
    keep_control_tokens: bool = False  # inside the texts of rows
    ignore_columns: Sequence[str] = ()
    apply_chat_template_kwargs: Mapping[str, Any] = Field(default_factory=dict)
    tokenizer_workers: int | None = Field(default=None, ge=0)  # 0: in this process; None: the cores at hand
    seed: int = 42

    @property
    def max_length(self) -> int:
        """Tokens that a sequence may have. Only the sum of prompt and response is limited."""
        return self.max_prompt_length + self.max_response_length

    @property
    def workers(self) -> int:
        """Processes that tokenise."""
        return len(os.sched_getaffinity(0)) if self.tokenizer_workers is None else self.tokenizer_workers

    def files(self, split: str) -> str | Sequence[str] | None:
        """The setting that names the files of a split."""
        return self.train_files if split == "train" else self.val_files
