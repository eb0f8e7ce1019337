"""Which words of a text are style."""

from __future__ import annotations

import pytest

from soul.metrics.style import content_mask


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Wait, let me see: the box is red.", "see box red"),
        ("However, it's probably 12 kg!", "1 2 kg"),
        ("I’d say letter, not let.", "say letter"),
        ("Maybe we'll meet Anna's cat", "meet Anna's cat"),
        ("vielleicht Straße", "vielleicht Straße"),
        ("... - \n", ""),
        ("ok \ufffd", "\ufffd"),
    ],
)
def test_the_content_of_a_text(text: str, content: str) -> None:
    mask = content_mask(text)
    left = "".join(c if flag else " " for c, flag in zip(text, mask, strict=True)).split()
    assert "".join(left) == content.replace(" ", "")
