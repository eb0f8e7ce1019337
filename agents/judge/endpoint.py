"""Where a model lives and how it is asked. Holds the NAME of the key's variable, never the key."""

from __future__ import annotations

import os
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

import openai
from pydantic import BaseModel, ConfigDict, Field, field_validator

from agents.errors import MissingKey

ANY_KEY = "EMPTY"  # what local servers take; used where no key variable is named
NO_KEY = "none"  # api_key_env=none: the endpoint wants no key
DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-5-nano"  # the judge of the paper

StructuredMode = Literal["json_schema", "json_object", "prompt"]
MODES: tuple[StructuredMode, ...] = ("json_schema", "json_object", "prompt")  # the best first


class Endpoint(BaseModel):
    """One model behind one OpenAI-compatible address, with the limits and prices that hold for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: str = DEFAULT_MODEL
    base_url: str | None = None  # None: OPENAI_BASE_URL, else the SDK's own default
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

    @property
    def url(self) -> str:
        """The base URL that calls go to."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL

    @property
    def address(self) -> str:
        """The base URL as it may be shown: without user and password."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

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

    def client(self) -> openai.AsyncOpenAI:
        """An async client of the official SDK: its own retries off, on its cheaper transport where that is installed.

        Raises:
            MissingKey: the key's variable is not set.
        """
        key = ANY_KEY
        if self.api_key_env is not None:
            found = os.environ.get(self.api_key_env)
            if not found:
                raise MissingKey(
                    f"No key for the endpoint {self.address} (model {self.model}): the environment variable "
                    f"{self.api_key_env} is not set. Export it (export {self.api_key_env}=...), or name another one "
                    f"with judge.api_key_env; judge.api_key_env={NO_KEY} is for a server that wants no key."
                )
            key = found
        http = _transport(self.url, self.timeout_s)
        return openai.AsyncOpenAI(
            api_key=key, base_url=self.url, timeout=self.timeout_s, max_retries=0, http_client=http
        )


def _transport(url: str, timeout_s: float) -> Any:
    """The SDK's aiohttp transport costs a third less CPU a call than its default one; it comes as an extra."""
    # The cap is `concurrency`; a smaller pool would queue calls out of sight, and close connections it could keep.
    new_limits = type(openai.DEFAULT_CONNECTION_LIMITS)
    limits = new_limits(keepalive_expiry=60.0)
    if urlsplit(url).username is not None:  # which aiohttp refuses beside a bearer key
        return openai.DefaultAsyncHttpxClient(timeout=timeout_s, limits=limits)
    try:
        # aiohttp takes 0 for "no limit" and would take None for its default, 100.
        return openai.DefaultAioHttpClient(
            timeout=timeout_s, limits=new_limits(max_connections=0, keepalive_expiry=60.0)
        )
    except RuntimeError:  # how the SDK says that the extra is not installed
        return openai.DefaultAsyncHttpxClient(timeout=timeout_s, limits=limits)
