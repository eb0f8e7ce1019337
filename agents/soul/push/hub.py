"""Upload to the Hugging Face hub. Address and token are those of huggingface_hub: HF_ENDPOINT, HF_TOKEN, its login."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import ClassVar, Literal

from soul.errors import BadSettings, SoulError, one_line
from soul.push.upload import Upload

_AGAIN = "Run the same command again: files that have arrived are not uploaded twice."


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
    from httpx import HTTPError
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

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
    except LocalTokenNotFoundError:
        raise PushFailed(_no_token(api.endpoint)) from None
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code == 401:
            raise PushFailed(_no_token(api.endpoint)) from None
        raise PushFailed(f"{api.endpoint} refused {repo}: {one_line(error, 400)}") from error
    except OfflineModeIsEnabled as error:
        raise PushFailed(f"{one_line(error, 300)} Unset HF_HUB_OFFLINE to push.") from None
    except HTTPError as error:
        raise PushFailed(
            f"{api.endpoint} cannot be reached: {one_line(error, 300)}. Set HF_ENDPOINT if your hub is at another "
            f"address. {_AGAIN}"
        ) from error
    except (OSError, RuntimeError) as error:  # huggingface_hub wraps whatever ends the transfer of a large file
        cause = f": {one_line(error.__cause__, 300)}" if error.__cause__ else ""
        raise PushFailed(f"{one_line(error, 300)}{cause} {_AGAIN}") from error
    return str(commit.commit_url)


def _no_token(endpoint: str) -> str:
    return (
        f"{endpoint} takes no upload without a valid token that may write. Set HF_TOKEN, or log in once with "
        "`hf auth login`."
    )
