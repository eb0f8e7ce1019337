"""An upload to the Hugging Face hub: its files, what stays here, what must not be published.

Address and token are those of huggingface_hub: HF_ENDPOINT, HF_TOKEN, its login.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from soul.errors import BadSettings, SoulError, one_line
from soul.push.keys import like_keys

CARD = "README.md"
_AGAIN = "Run the same command again: files that have arrived are not uploaded twice."


class NotPushable(SoulError):
    """A folder is nothing to upload, or holds something that must not be published."""


@dataclass(frozen=True)
class Upload:
    """The files of an upload, and what the user should know of it.

    Attributes:
        kind: the kind of repository.
        files: their paths in the folder.
        left_out: entries of the folder that stay here.
        remarks: sentences for the user.
        made: files that are made for the hub, by their paths there.
        withheld: why the files may only go to a private repository; empty if they may go to a public one.
    """

    kind: Literal["model", "dataset"]
    folder: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    made: Mapping[str, bytes] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Each file's path on the hub -> its bytes."""
        made = {name: len(content) for name, content in self.made.items()}
        return made | {name: (self.folder / name).stat().st_size for name in self.files}

    def check_keys(self) -> None:
        """Look for keys in the files of the folder.

        Raises:
            NotPushable: one looks like a key or holds one.
        """
        if keys := like_keys(self.folder, self.files):
            places = "; ".join(f"{name}, {place}" for name, place in keys.items())
            raise NotPushable(
                f"{self.folder}: {places}: this looks like a key or a password. Nothing was uploaded. Remove the line, "
                "the row or the file."
            )

    def check_private(self, private: bool) -> None:
        """Check that files which must not be published go to a private repository.

        Raises:
            NotPushable: they do not.
        """
        if self.withheld and not private:
            raise NotPushable(
                f"{self.folder}: {'; '.join(self.withheld)}. These files cannot go to a public repository: take them "
                "out of the folder, or name a private repository and add --private. Nothing was uploaded."
            )


class PushFailed(SoulError):
    """The hub did not take the upload."""

    exit_code: ClassVar[Literal[1]] = 1


def require_hub() -> None:
    """Check that huggingface_hub is installed.

    Raises:
        BadSettings: it is not.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        raise BadSettings("soul push needs huggingface_hub, which is not installed: pip install 'ditto-soul[hub]'")


def check_name(repo: str) -> None:
    """Check that a repository's name is one that the hub takes.

    Raises:
        BadSettings: it is not.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise BadSettings(f"{repo}: {one_line(error, 300)}") from None
    if "/" not in repo:
        raise BadSettings(f"{repo}: write OWNER/NAME, with your user name or organisation as the owner.")


def push(upload: Upload, repo: str, private: bool) -> str:
    """Create the repository if there is none, and upload the files in one commit.

    Large files go first, each by itself, and the commit names them. So a broken upload leaves the repository as it was,
    and the same command sends only the files that had not arrived.

    Args:
        private: a new repository is private; one that exists stays as it is.

    Returns:
        The commit's address.

    Raises:
        PushFailed: the hub refuses the token, the repository or a file, or cannot be reached.
        NotPushable: the repository is public and the files must not be published.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    api = HfApi(library_name="ditto-soul")
    contents: dict[str, bytes | Path] = {**upload.made, **{name: upload.folder / name for name in upload.files}}
    try:
        api.create_repo(repo, repo_type=upload.kind, private=private, exist_ok=True)
        if upload.withheld:
            upload.check_private(bool(api.repo_info(repo, repo_type=upload.kind).private))
        commit = api.create_commit(
            repo,
            [CommitOperationAdd(name, content) for name, content in contents.items()],
            commit_message=f"Upload {upload.folder.name}",
            repo_type=upload.kind,
        )
    except Exception as error:
        refused = error.response.status_code if isinstance(error, HfHubHTTPError) and error.response is not None else 0
        if isinstance(error, SoulError):
            raise
        if refused == 401 or isinstance(error, LocalTokenNotFoundError):
            raise PushFailed(
                f"{api.endpoint} takes no upload without a valid token that may write. Set HF_TOKEN, or log in once "
                "with `hf auth login`."
            ) from None
        cause = f" ({one_line(error.__cause__, 300)})" if error.__cause__ else ""
        raise PushFailed(
            f"{api.endpoint} did not take {repo}: {one_line(error, 400)}{cause}. Another hub: HF_ENDPOINT. {_AGAIN}"
        ) from error
    return str(commit.commit_url)
