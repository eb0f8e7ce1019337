"""A chat template with a few lines before it that complete the messages for it.

The lines are Jinja, so whatever renders the template (transformers, vLLM, a checkpoint that is served elsewhere) gives
the policy the same context as training did.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Adaptation:
    """The completions with which a template can render every conversation of our tasks.

    Attributes:
        fold_system: it takes no system message, so the instructions become a user message.
        lone_system: it needs a user message before the first answer, so instructions alone become a user message.
        merge_users: it takes no two user messages in a row, so they become one, with an empty line between them.
        empty_system: it writes a system prompt of its own where there is none; an empty one replaces it.
        defaults: arguments of the template, such as enable_thinking, for whoever renders it without them.
    """

    fold_system: bool = False
    lone_system: bool = False
    merge_users: bool = False
    empty_system: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def apply(self, template: str) -> str:
        """The template with what it needs; unchanged if it needs nothing."""
        lines = [
            f"{{%- if {name} is not defined -%}}{{%- set {name} = {_literal(value)} -%}}{{%- endif -%}}"
            for name, value in self.defaults.items()
            if re.search(rf"\b{name}\b", template)
        ]
        if self.empty_system:
            lines.append(_EMPTY_SYSTEM)
        if self.fold_system or self.lone_system or self.merge_users:
            lines.append(self._rewritten())
        # A tag would swallow a line break at the beginning of the template; an expression does not.
        return "".join([*lines, "{{- '' }}", template]) if lines else template

    def _rewritten(self) -> str:
        lone = "loop.first and (loop.last or loop.nextitem.role != 'user')"
        turns_user = "true" if self.fold_system else lone if self.lone_system else "false"
        merges = self.merge_users or self.fold_system
        return _REWRITE.replace("TURNS_USER", turns_user).replace("MERGES", str(merges).lower())


_EMPTY_SYSTEM = (
    "{%- if messages[0].role != 'system' -%}"
    "{%- set messages = [{'role': 'system', 'content': ''}] + messages -%}{%- endif -%}"
)
# vLLM may pass a content as a list of parts with a text each.
_REWRITE = """
{%- set soul = namespace(messages=[]) -%}
{%- for message in messages -%}
{%- set role = 'user' if message.role == 'system' and (TURNS_USER) else message.role -%}
{%- set last = soul.messages[-1] if soul.messages else none -%}
{%- set parts = [last.content, message.content] if last else [] -%}
{%- if MERGES and last and role == 'user' and last.role == 'user' -%}
{%- set first = parts[0] if parts[0] is string else parts[0] | map(attribute='text') | join -%}
{%- set second = parts[1] if parts[1] is string else parts[1] | map(attribute='text') | join -%}
{%- set soul.messages = soul.messages[:-1] + [{'role': role, 'content': first ~ '\n\n' ~ second}] -%}
{%- elif role != message.role -%}
{%- set soul.messages = soul.messages + [{'role': role, 'content': message.content}] -%}
{%- else -%}
{%- set soul.messages = soul.messages + [message] -%}
{%- endif -%}
{%- endfor -%}
{%- set messages = soul.messages -%}
"""


def _literal(value: Any) -> str:
    """A value as Jinja reads it."""
    return "none" if value is None else json.dumps(value)
