"""Merged judge folders: each answer once, each bill once, and conflicts counted."""

import platform

import pytest

from soul.errors import BadCache
from soul.judge.__main__ import main
from soul.judge.cache import Cache
from soul.judge.call.usage import Usage
from soul.judge.ledger import Ledger
from soul.judge.merge import BILL, CACHE, BadMerge, merge_judges


def folder(path, answers, calls):
    cache = Cache(path / CACHE / "a node.sqlite")
    for key, text in answers.items():
        cache.put(key.encode(), text)
    cache.close()
    ledger = Ledger()
    ledger.add("hitom", {"judge": Usage(calls=calls, cost_usd=0.5)})
    ledger.save(path / BILL)
    return path


def answers_in(path):
    cache = Cache(path / CACHE / f"{platform.node()}.sqlite")
    rows = dict(cache._db.execute("SELECT key, text FROM answers"))
    cache.close()
    return {key.decode(): text for key, text in rows.items()}


def test_every_answer_and_every_bill_is_there_once(tmp_path):
    one = folder(tmp_path / "node 1?", {"a": "A", "b": "B"}, 10)
    two = folder(tmp_path / "node 2", {"b": "B", "c": "C", "a": "another"}, 5)
    merged = merge_judges([one, two], tmp_path / "both")
    assert (merged.answers, merged.repeated, merged.conflicts, merged.bills) == (3, 1, 1, 2)
    assert answers_in(tmp_path / "both") == {"a": "A", "b": "B", "c": "C"}
    assert Ledger.load(tmp_path / "both" / BILL).total() == Usage(calls=15, cost_usd=1.0)

    again = merge_judges([one, tmp_path / "both", two, one], tmp_path / "again")
    assert (again.bills, again.repeated_bills) == (1, 3)
    assert Ledger.load(tmp_path / "again" / BILL).total().calls == 15
    assert answers_in(tmp_path / "again") == {"a": "A", "b": "B", "c": "C"}
    assert answers_in(one / "..") == {} and len(list((one / CACHE).glob("*.sqlite"))) == 1  # sources are as they were


def test_bills_that_overlap_are_refused(tmp_path):
    one, two, three = (folder(tmp_path / str(n), {}, n) for n in (1, 2, 3))
    merge_judges([one, two], tmp_path / "a")
    merge_judges([two, three], tmp_path / "b")
    with pytest.raises(BadMerge, match="were both merged from one bill"):
        merge_judges([tmp_path / "a", tmp_path / "b"], tmp_path / "c")


def test_a_file_that_is_no_cache_is_named(tmp_path):
    one = folder(tmp_path / "1", {"a": "A"}, 1)
    broken = tmp_path / "2" / CACHE / "node.sqlite"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no database" * 1000)
    with pytest.raises(BadCache, match="2/judge_cache/node.sqlite cannot be merged"):
        merge_judges([one, tmp_path / "2"], tmp_path / "out")


def test_the_command_writes_a_new_folder_only(tmp_path, capsys):
    one = folder(tmp_path / "1", {"a": "A"}, 1)
    assert main(["merge", str(one), str(one / CACHE), "--out", str(tmp_path / "out")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 answers (1 further copies left out); 0 conflicts" in printed and "$0.50" in printed
    assert main(["merge", str(one), "--out", str(tmp_path / "out")]) == 2
    assert "out is not empty" in capsys.readouterr().err
    assert main(["merge", str(tmp_path), "--out", str(tmp_path / "new")]) == 2
    assert "No folder has judge_cache" in capsys.readouterr().err
