"""`python -m tests.names`: check our sources against what is installed."""

import sys

from tests.names.check import check_all

if __name__ == "__main__":
    findings = check_all()
    print("\n".join(findings.wrong))
    print(", ".join(f"{n} {kind}" for kind, n in findings.checked.items()), f"checked; {len(findings.wrong)} wrong")
    sys.exit(bool(findings.wrong))
