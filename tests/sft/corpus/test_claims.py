"""Who puts a shard together, and when: never while another process still works on one of its units."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from sft.corpus.claims import UnitShares

HOLD_UNIT_0 = """
import sys
from pathlib import Path
from sft.corpus.claims import ClaimFile
claims = ClaimFile(Path(sys.argv[1]))
print(claims.take(0), flush=True)
sys.stdin.read()
"""


@dataclass(eq=False)
class Shard:
    """A shard of two units."""

    folder: Path
    done: set[int] = field(default_factory=set)
    joined: int = 0

    def missing(self) -> list[int]:
        return sorted({0, 1} - self.done)

    def lacks(self, number: int) -> bool:
        return number not in self.done

    def finish(self) -> None:
        self.joined += 1


def test_a_shard_waits_for_everybody_who_still_writes_to_it(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    command = [sys.executable, "-c", HOLD_UNIT_0, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        shares = UnitShares([shard], lambda _shard, _numbers: None)
        jobs = iter(shares)
        assert next(jobs) == (shard, 1)
        shard.done |= {0, 1}  # a worker of a killed process finishes unit 0, which the other process has begun again
        shares.done(shard, 1)
        assert next(jobs) is None and shard.joined == 0
        other.communicate()
    assert next(jobs, "no more") == "no more" and shard.joined == 1
    shares.close()


def test_a_shard_waits_for_this_process_too(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    shares = UnitShares([shard], lambda _shard, _numbers: None)
    jobs = iter(shares)
    assert [next(jobs), next(jobs)] == [(shard, 0), (shard, 1)]
    shard.done |= {0, 1}
    shares.done(shard, 0)
    assert shard.joined == 0
    shares.done(shard, 1)
    assert shard.joined == 1 and next(jobs, "no more") == "no more"
    shares.close()
