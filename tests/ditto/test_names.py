"""The installed training stack has what our code takes from it.

Promise under test (CONTRIBUTING): the names, signatures and base classes that we rely on are read from our own sources
and compared with what is installed, on every set of versions.
"""

import ast

from tests.names.check import ROOT, check_all, sources
from tests.names.uses import imports_of

QUEUE = "verl/ditto/batch/queue.py"


def test_the_stack_has_what_our_code_takes_from_it() -> None:
    findings = check_all()
    assert not findings.wrong, "\n".join(findings.wrong)
    assert min(findings.checked[kind] for kind in ("imports", "attributes", "calls", "overrides", "super calls")) > 0
    assert findings.checked["modules"] > 200


def test_one_module_alone_knows_the_transfer_queue() -> None:
    """verl's next branch drops it: what we use of it has to be replaced in one place."""
    users = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(item.module.startswith("transfer_queue") for item in imports_of(ast.parse(path.read_text())))
    }
    assert users == {QUEUE}
