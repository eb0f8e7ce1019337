"""Which of several ranks' failures is reported."""

import json
import os
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from sft.run.ranks import failure_text


def failed(folder: Path, exitcode: int, message: str | None = None) -> ProcessFailure:
    file = folder / f"{exitcode}.json"
    if message:
        extra = {"py_callstack": "Traceback of the rank", "timestamp": "5"}
        file.write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
    return ProcessFailure(local_rank=0, pid=7, exitcode=exitcode, error_file=str(file))


@pytest.mark.parametrize(
    ("exitcodes", "code", "text"),
    [
        ((143, 143), 143, "Stopped by SIGTERM."),  # another node's launcher got the signal
        ((-15, 130), 130, "Stopped by Ctrl-C."),  # torchrun ended a rank that was at its end
        ((-9, os.EX_SOFTWARE), 1, "was ended by SIGKILL, often because memory ran out"),
        ((os.EX_SOFTWARE, 1), 1, "OutOfSpace: no space left in x"),
        ((1, 143), 1, "OutOfSpace: no space left in x"),  # no space for the checkpoint of the stop
        ((3,), 1, "ended with code 3"),
    ],
)
def test_the_cause_is_reported(tmp_path: Path, exitcodes: tuple[int, ...], code: int, text: str) -> None:
    messages = {1: "OutOfSpace: no space left in x", os.EX_SOFTWARE: "RuntimeError: Connection closed by peer"}
    failures = [failed(tmp_path, exitcode, messages.get(exitcode)) for exitcode in exitcodes]
    for order in (failures, failures[::-1]):
        actual, words = failure_text(order, tmp_path)
        assert actual == code and text in words
