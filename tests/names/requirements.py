"""`python -m tests.names.requirements verl`: what a package asks for and does not find installed in that version."""

import sys
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement


def unmet(package: str) -> list[str]:
    """The requirements of an installed package, its extras left out, that this environment does not meet."""
    found = []
    for text in requires(package) or []:
        wanted = Requirement(text)
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            have = version(wanted.name)
        except PackageNotFoundError:
            have = "nothing"
        if have == "nothing" or not wanted.specifier.contains(have, prereleases=True):
            found.append(f"{package} {version(package)} asks for {wanted}, installed is {have}")
    return found


if __name__ == "__main__":
    complaints = [line for package in sys.argv[1:] for line in unmet(package)]
    print("\n".join(complaints) or f"{' '.join(sys.argv[1:])}: every requirement is met")
    sys.exit(bool(complaints))
