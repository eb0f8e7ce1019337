"""`python -m tests.names [FILES OR FOLDERS]`: check our sources, or others (verl's own use of vLLM, say)."""

import sys
from pathlib import Path

from tests.names.check import check_all, check_files

if __name__ == "__main__":
    findings = check_files([Path(word) for word in sys.argv[1:]]) if sys.argv[1:] else check_all()
    print("\n".join(findings.wrong))
    print(
        ", ".join(f"{count} {kind}" for kind, count in findings.checked.items())
        + f" checked; {len(findings.wrong)} wrong"
    )
    sys.exit(bool(findings.wrong))
