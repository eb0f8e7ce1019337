"""Another verl than the pinned one is named in the plan, or refused with the names that it lacks."""

from pathlib import Path

import pytest

from ditto.verl_hooks import installed_verl


def test_the_pinned_verl_is_not_mentioned() -> None:
    assert installed_verl.describe() is None


def test_a_newer_verl_is_named_or_refused_with_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed_verl, "version", lambda package: "0.10.0.dev0")
    monkeypatch.setattr(installed_verl, "_OURS", tmp_path)
    (tmp_path / "good.py").write_text("from verl import DataProto\nfrom verl.utils import tensordict_utils as tu\n")
    assert "0.10.0.dev0 is installed; we test with ==0.9.1" in str(installed_verl.describe())
    (tmp_path / "step.py").write_text("def f():\n    from verl.nosuch import a\n\nfrom verl.protocol import Gone\n")
    with pytest.raises(installed_verl.OtherVerl) as refused:
        installed_verl.describe()
    assert "verl.nosuch (step.py:2: " in str(refused.value) and "verl.protocol.Gone (step.py:4)" in str(refused.value)
