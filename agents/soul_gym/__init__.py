"""The name under which verifiers finds SOUL: `vf-eval soul-gym`. It looks for top-level modules only."""

from soul.verifiers import SoulEnv, SoulHarness, SoulTaskset

__all__ = ["SoulEnv", "SoulHarness", "SoulTaskset"]
