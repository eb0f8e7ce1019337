"""All that we take from Ray's private names (tried with 2.60), so that another Ray breaks this file only.

Ray is imported where it is needed: supervised training handles signals without it.
"""

from __future__ import annotations


def cluster_address(address: str | None, temp_dir: str | None) -> str | None:
    """The address of the running cluster that `ray.init` would join with these settings; None: it would start one."""
    from ray._private.services import canonicalize_bootstrap_address

    found: str | None = canonicalize_bootstrap_address(address, temp_dir)
    return found


def uses_token() -> bool:
    """True if `ray start` would ask for a token; this process then uses it, too."""
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

    return bool(maybe_enable_token_auth_if_token_available(warn_if_disabled=False))


def put(name: str, value: str) -> None:
    """Store a text for all processes of this job; they can read it while its actors are busy."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(_key(name), value.encode())


def get(name: str) -> str | None:
    """The text that a process of this job has stored; None if none has."""
    from ray.experimental import internal_kv

    value: bytes | None = internal_kv._internal_kv_get(_key(name))
    return None if value is None else value.decode()


def _key(name: str) -> bytes:
    import ray

    return f"ditto:{ray.get_runtime_context().get_job_id()}:{name}".encode()
