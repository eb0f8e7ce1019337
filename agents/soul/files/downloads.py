"""Recognise what a failed download leaves in place of a data file, so that every reader's error says what to do."""

from pathlib import Path

_POINTER = b"version https://git-lfs"
_PAGES = (b"<!doctype html", b"<html")


def remedy(path: str | Path, otherwise: str) -> str:
    """The sentence that says what to do about an unreadable file: `otherwise` if its content is not recognised."""
    if not Path(path).is_file():
        return otherwise
    with Path(path).open("rb") as file:
        head = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(_POINTER):
        return "It is a pointer of Git LFS, not the data: run `git lfs pull` in its repository."
    if head.startswith(_PAGES):
        return (
            "It is a web page, not the data: download the file itself (on GitHub from the address with /raw/, on the "
            "Hugging Face hub from that with /resolve/), logged in if the site asks for it."
        )
    return otherwise
