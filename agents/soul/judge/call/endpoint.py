"""Where a model lives and how it is asked. Holds the NAME of the key's variable, never the key."""

from __future__ import annotations

import os
from typing import Literal
from urllib.parse import urlsplit

import openai
from pydantic import BaseModel, ConfigDict, Field, field_validator

from soul.cli.redaction import blank, redact, secret_parameter, shown_url
from soul.judge.call.http_client import http_client
from soul.judge.keys import key_of

ANY_KEY = "EMPTY"  # what local servers take; used where no key variable is named
NO_KEY = "none"  # api_key_env=none: the endpoint needs no key
DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-5-nano"  # the judge of the paper

StructuredMode = Literal["json_schema", "json_object", "prompt"]
MODES: tuple[StructuredMode, ...] = ("json_schema", "json_object", "prompt")  # the best first


class Endpoint(BaseModel):
    """One model behind one OpenAI-compatible address, with the limits and prices that hold for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)

    model: str = DEFAULT_MODEL
    base_url: str | None = Field(
        default=None, validate_default=True
    )  # None: OPENAI_BASE_URL, else the SDK's own default
    api_key_env: str | None = "OPENAI_API_KEY"  # None (or "none"): the endpoint wants no key
    reasoning_effort: str | None = None
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = None  # sent with every request; of the model under test each sample has its own, derived from it
    max_output_tokens: int | None = Field(default=None, ge=1)
    structured: Literal["auto", "json_schema", "json_object", "prompt"] = "auto"  # auto: detected once
    timeout_s: float = Field(default=60.0, gt=0)  # one request
    deadline_s: float = Field(default=300.0, gt=0)  # one call with retries and re-asks, from its first request on
    max_attempts: int = Field(default=6, ge=1)
    max_reasks: int = Field(default=1, ge=0)
    max_answer_mb: float = Field(default=8.0, gt=0, allow_inf_nan=False)  # of an answer, also once it is decompressed
    concurrency: int = Field(default=64, ge=1)  # requests in flight, over all processes of a run
    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)  # prompt and completion together
    price_in: float | None = Field(default=None, ge=0)  # US dollars per million tokens
    price_cached: float | None = Field(default=None, ge=0)  # None: as price_in
    price_out: float | None = Field(default=None, ge=0)

    @field_validator("api_key_env")
    @classmethod
    def _no_key(cls, name: str | None) -> str | None:
        if name is None or name.lower() in (NO_KEY, ""):
            return None
        if not name.isidentifier():  # not repeated: it may be the key itself
            raise ValueError("is no name of an environment variable; the key itself stands in no setting")
        return name

    @field_validator("base_url")
    @classmethod
    def _no_key_in_url(cls, url: str | None) -> str | None:
        # (Not in OPENAI_BASE_URL either, which the settings of a run write out for its workers.)
        name = secret_parameter(url or os.environ.get("OPENAI_BASE_URL") or "")
        if name is not None:  # the address is not repeated: it holds the key
            where = "" if url else " in OPENAI_BASE_URL"
            raise ValueError(
                f"the address{where} has a key in its query ({name}=...), where logs and files would show it; name the "
                "key's environment variable with api_key_env"
            )
        return url

    @property
    def url(self) -> str:
        """The base URL that calls go to."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL

    @property
    def address(self) -> str:
        """The base URL as it may be shown: without user, password, and values in its query."""
        return shown_url(self.url)

    @property
    def name(self) -> str:
        """Model and address, for people."""
        return f"{self.model} at {self.address}"

    @property
    def priced(self) -> bool:
        """Whether the cost of a call is known."""
        return self.price_in is not None and self.price_out is not None

    def cost(self, prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> float:
        """US dollars; 0.0 where the prices are not known (see `priced`). Cached tokens are part of the prompt's."""
        if self.price_in is None or self.price_out is None:
            return 0.0
        cached = self.price_in if self.price_cached is None else self.price_cached
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.price_in + cached_tokens * cached + completion_tokens * self.price_out) / 1e6

    def without_secrets(self, text: str, key: str) -> str:
        """A text about this endpoint without its key, and without what is secret in its address."""
        query = urlsplit(self.url).query
        text = text.replace(query, urlsplit(self.address).query) if query else text
        return redact(blank(text, key))

    def client(self) -> openai.AsyncOpenAI:
        """An async client of the official SDK: its own retries off, on its cheaper transport where that is installed.

        Raises:
            MissingKey: the key's variable is not set, or holds a text that cannot be a key.
        """
        server = f"{self.address} (model {self.model})"
        key = ANY_KEY if self.api_key_env is None else key_of(self.api_key_env, server)
        http = http_client(self.url, self.timeout_s, int(self.max_answer_mb * 1e6))
        return openai.AsyncOpenAI(
            api_key=key, base_url=self.url, timeout=self.timeout_s, max_retries=0, http_client=http
        )
