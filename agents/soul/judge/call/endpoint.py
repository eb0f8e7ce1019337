"""The settings of one model: address, request options, limits and prices.

They contain the NAME of the environment variable with the API key, never the key itself.
"""

import os
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from soul.cli.redaction import blank, redact, secret_parameter, shown_url, watch
from soul.errors import MissingKey
from soul.judge.call.http import HttpConnection

ANY_KEY = "EMPTY"  # local servers accept any key; sent if no key variable is named
NO_KEY = "none"  # api_key_env=none: the endpoint needs no key
DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-5-nano"  # the judge of the paper
# Most tokens of an answer of a judge, partner or environment without `max_output_tokens`: several times the longest
# verdict with its thoughts. Without a limit, a model that repeats itself writes until its context ends.
MOST_TOKENS = 16_384
# OpenAI's list: model -> US dollars for a million prompt, cached prompt and answer tokens, and the month. It holds
# at DEFAULT_URL, for an endpoint that has no price of its own.
LIST_PRICES: dict[str, tuple[float, float, float, str]] = {
    "gpt-5-nano": (0.05, 0.005, 0.4, "2025-08"),
    "gpt-5-mini": (0.25, 0.025, 2.0, "2025-08"),
    "gpt-5.4": (2.5, 0.25, 15.0, "2026-06"),
    "gpt-5.4-mini": (0.75, 0.075, 4.5, "2026-06"),
    "gpt-5.4-nano": (0.2, 0.02, 1.25, "2026-06"),
    "gpt-5.5": (5.0, 0.5, 30.0, "2026-06"),
}
_TIMEOUTS = 5  # the deadline of a request with all its retries, in timeouts of one

StructuredMode = Literal["json_schema", "json_object", "prompt"]
MODES: tuple[StructuredMode, ...] = ("json_schema", "json_object", "prompt")  # the best first


class Endpoint(BaseModel):
    """One model at one OpenAI-compatible address, with its limits and prices."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    model: str = Field(
        default=DEFAULT_MODEL,
        description="The model's name at the endpoint. The judge's null takes JUDGE_MODEL_NAME, else the paper's judge "
        "of the task.",
    )
    base_url: str | None = Field(
        default=None,
        validate_default=True,
        description="Address of an OpenAI-compatible API; null takes OPENAI_BASE_URL, else OpenAI's.",
    )
    api_key_env: str | None = Field(
        default="OPENAI_API_KEY",
        description="NAME of the environment variable that holds the key; `none` for a server without keys.",
    )
    reasoning_effort: str | None = Field(
        default=None, description="Sent as `reasoning_effort`; the judge's null takes JUDGE_MODEL_REASONING."
    )
    temperature: float | None = Field(default=None, ge=0, description="Sampling temperature; null sends none.")
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None  # sent with every request; for a model under test, each sample's seed is derived from it
    max_output_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Limit on the tokens of one answer, thoughts included; null means 16,384, or what the endpoint has "
        "room for.",
    )
    structured: Literal["auto", "json_schema", "json_object", "prompt"] = Field(
        default="auto",
        description="How JSON is asked for; `auto` tries the modes in this order and keeps the first that the endpoint "
        "takes.",
    )
    timeout_s: float = Field(
        default=60.0,
        gt=0,
        description="Seconds that one request may take; with all its retries, a request may take five times as long.",
    )
    max_attempts: int = Field(
        default=6,
        ge=1,
        description="Requests for one answer at most, after errors that a retry can help; refusals with 429 do not "
        "count.",
    )
    max_reasks: int = Field(
        default=1, ge=0, description="How often a model is asked again after an answer that does not fit the schema."
    )
    concurrency: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="Requests in flight at once over the whole run, whatever the number of workers.",
    )
    requests_per_minute: float | None = Field(
        default=None, gt=0, description="Rate limit of the whole run; null sets none."
    )
    tokens_per_minute: float | None = Field(
        default=None, gt=0, description="Rate limit of the whole run, prompt and answer together; null sets none."
    )
    price_in: float | None = Field(
        default=None,
        ge=0,
        description="US dollars for a million prompt tokens; null for both prices takes OpenAI's list "
        "([prices](judge_limits.md#money)) at OpenAI's own address, else the cost is unknown.",
    )
    price_cached: float | None = Field(
        default=None, ge=0, description="US dollars for a million cached prompt tokens; null takes price_in."
    )
    price_out: float | None = Field(default=None, ge=0, description="US dollars for a million answer tokens.")

    @field_validator("api_key_env")
    @classmethod
    def _no_key(cls, name: str | None) -> str | None:
        if name is None or name.lower() in (NO_KEY, ""):
            return None
        if not name.isidentifier():  # leave the value out of the message: it may be the key itself
            raise ValueError("is not the name of an environment variable; never put the key itself into a setting")
        return name

    @field_validator("base_url")
    @classmethod
    def _no_key_in_url(cls, url: str | None) -> str | None:
        # Check OPENAI_BASE_URL too, because a run writes the resolved address into the settings of its workers.
        name = secret_parameter(url or os.environ.get("OPENAI_BASE_URL") or "")
        if name is not None:  # leave the address out of the message: it contains the key
            where = "" if url else " in OPENAI_BASE_URL"
            raise ValueError(
                f"the address{where} has a key in its query ({name}=...), which logs and files would show; remove it, "
                "and name the key's environment variable with api_key_env"
            )
        return url

    @property
    def url(self) -> str:
        """The base URL that requests are sent to."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL

    @property
    def address(self) -> str:
        """The base URL for display: without user, password and the values in its query."""
        return shown_url(self.url)

    @property
    def name(self) -> str:
        """Model and address, for messages."""
        return f"{self.model} at {self.address}"

    @property
    def deadline_s(self) -> float:
        """Seconds that a request may take with all its retries."""
        return _TIMEOUTS * self.timeout_s

    @property
    def priced(self) -> bool:
        """Return True if the cost of a call is known."""
        return self.prices is not None

    @property
    def prices(self) -> tuple[float, float, float] | None:
        """US dollars for a million prompt, cached prompt and answer tokens; None if one is unknown."""
        if self.price_in is not None and self.price_out is not None:
            return self.price_in, self.price_in if self.price_cached is None else self.price_cached, self.price_out
        if (self.price_in, self.price_out) == (None, None) and self.url == DEFAULT_URL and self.model in LIST_PRICES:
            return LIST_PRICES[self.model][:3]
        return None

    def cost(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """The cost in US dollars; 0.0 if the prices are unknown (see `priced`).

        Args:
            cached_tokens: those of the `prompt_tokens` that the endpoint had cached.
        """
        if self.prices is None:
            return 0.0
        prompt, cached, answer = self.prices
        return ((prompt_tokens - cached_tokens) * prompt + cached_tokens * cached + completion_tokens * answer) / 1e6

    def without_secrets(self, text: str, key: str) -> str:
        """The text without the key and without the secret parts of the address."""
        query = urlsplit(self.url).query
        text = text.replace(query, urlsplit(self.address).query) if query else text
        return redact(blank(text, key))

    def key(self) -> str:
        """The key that is sent. Raises MissingKey: the key's variable is not set, or its value cannot be a key."""
        variable, server = self.api_key_env, f"{self.address} (model {self.model})"
        if variable is None:
            return ANY_KEY
        watch(variable)
        key = os.environ.get(variable)
        remedy = "If the server needs no key, use judge.api_key_env=none."
        if not key:
            raise MissingKey(
                f"No key for the endpoint {server}: the environment variable {variable} is not set. Set it "
                f"(export {variable}=...), or name another variable with judge.api_key_env. {remedy}"
            )
        quoted = len(key) > 1 and key[0] in "\"'`" and key[-1] == key[0]
        if quoted or not all("!" <= character <= "~" for character in key):
            raise MissingKey(
                f"The key for the endpoint {server}, in the environment variable {variable}, has quotation marks, a "
                f"blank, a line break or another character that no key has. Set it to the key alone: "
                f"export {variable}='...'. {remedy}"
            )
        return key

    def connection(self) -> HttpConnection:
        """The connections to this endpoint, which are made when they are used."""
        return HttpConnection(self.url, self.key())
