"""BehaviorChain: what a character does next, one link of a chain of behaviours (Li et al., 2025).

One turn: a letter in `<answer>` after the thinking, exact match. A row is one link of a chain, either as a JSON object
in the field `raw` or as separate fields.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import AliasChoices, Field, field_validator, model_validator

from soul.one_turn import LetterTask, letter_options
from soul.prompts import load_prompt
from soul.row_fields import Options, Prose, entries_of, nested_object, to_prose, without_nulls
from soul.task_types import Metric, NotBlank, Row

PROMPT = load_prompt("behavior_chain/policy")


class BehaviorChainRow(Row):
    """One link of a chain."""

    persona_name: NotBlank
    profile: Prose = Field(default="", validation_alias=AliasChoices("profile_text", "profile"))
    history: str = Field(default="", validation_alias=AliasChoices("history_text", "history_truncated", "history"))
    prior_chain: list[str] = Field(default=[], validation_alias=AliasChoices("prior_chain_text", "prior_chain"))
    current_context: NotBlank
    options: Options = Field(validation_alias=AliasChoices("options_dict", "options"))
    right_option_letter: NotBlank
    earlier_scenes: int | None = None  # how many; None if they come as one text

    @model_validator(mode="before")
    @classmethod
    def _unpack(cls, record: Mapping[str, Any]) -> Any:
        raw, outer = nested_object(record, "raw"), without_nulls(record)
        merged = {**outer, **raw, "index": outer.get("index", raw.get("index"))}  # the file's own number, if it has one
        merged.setdefault("earlier_scenes", _count(merged.get("prior_chain_text") or merged.get("prior_chain")))
        # Drop blank texts: a field may be blank under one of its names and have its text under the other.
        return {key: value for key, value in merged.items() if not (isinstance(value, str) and not value.strip())}

    @field_validator("history", mode="before")
    @classmethod
    def _chapters(cls, value: Any) -> Any:
        return "\n\n".join(_each(value, _chapter))

    @field_validator("prior_chain", mode="before")
    @classmethod
    def _links(cls, value: Any) -> Any:
        return _each(value, _link)


def _count(chain: Any) -> int | None:
    """Number of scenes of a chain; None for plain text, in which the scenes cannot be told apart."""
    scenes = entries_of(chain) if chain else []
    return len(scenes) if all(isinstance(scene, Mapping) for scene in scenes) else None


def _each(value: Any, write: Callable[[Mapping[str, Any]], str]) -> list[str]:
    """The entries of a list as prose, objects by `write`; a plain text is one entry."""
    texts = (write(entry) if isinstance(entry, Mapping) else to_prose(entry) for entry in entries_of(value))
    return [text for text in texts if text]


def _chapter(entry: Mapping[str, Any]) -> str:
    content, number = to_prose(entry.get("chapter_content")), to_prose(entry.get("chapter_num"))
    return f"Chapter {number}: {content}" if content and number else content


def _link(entry: Mapping[str, Any]) -> str:
    context, behavior = to_prose(entry.get("context")), to_prose(entry.get("behavior"))
    return "\n".join(part for part in (context, f"What the person did: {behavior}" if behavior else "") if part)


class BehaviorChain(LetterTask[BehaviorChainRow]):
    """What does this man do when he comes home to a burning house?"""

    name = "behavior_chain"
    row_type = BehaviorChainRow
    gold_field = "right_option_letter"
    headline = Metric("accuracy", source="model card (BehaviorChain)")
    cuts = (("history", "end"), ("prior_chain", "end"), ("profile", "start"))
    critic = load_prompt("behavior_chain/critique", 3)

    def render(self, row: BehaviorChainRow) -> str:
        chain = "\n\n".join(f"{number}. {link}" for number, link in enumerate(row.prior_chain, start=1))
        parts = {"Profile": row.profile, "What happened so far": row.history, "Earlier scenes": chain}
        known = "".join(f"{title}:\n{text.strip()}\n\n" for title, text in parts.items() if text.strip())
        scene, options = row.current_context, letter_options(row.options)
        return PROMPT.fill(person=row.persona_name, known=known, scene=scene, options=options)

    def groups(self, row: BehaviorChainRow) -> Mapping[str, str]:
        return {} if row.earlier_scenes is None else {"earlier scenes": str(row.earlier_scenes)}
