"""Upload to the Hugging Face hub. Address and token are those of huggingface_hub: HF_ENDPOINT, HF_TOKEN, its login."""

from __future__ import annotations

import importlib.util
from typing import ClassVar, Literal

from soul.errors import BadSettings, SoulError, one_line
from soul.push.checkpoint_files import Upload


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

    Args:
        private: a new repository is private; one that exists stays as it is.

    Returns:
        The commit's address.

    Raises:
        PushFailed: the hub refuses the token, the repository or a file, or cannot be reached.
    """
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    api = HfApi(library_name="ditto-soul")
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo,
            folder_path=upload.folder,
            allow_patterns=list(upload.files),
            commit_message=f"Upload {upload.folder.name}",
        )
    except LocalTokenNotFoundError:
        raise PushFailed(_no_token(api.endpoint)) from None
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code == 401:
            raise PushFailed(_no_token(api.endpoint)) from None
        raise PushFailed(f"{api.endpoint} refused {repo}: {one_line(error, 400)}") from error
    except OfflineModeIsEnabled as error:
        raise PushFailed(f"{one_line(error, 300)} Unset HF_HUB_OFFLINE to push.") from None
    except (HTTPError, OSError) as error:
        raise PushFailed(
            f"{api.endpoint} cannot be reached: {one_line(error, 300)}. Set HF_ENDPOINT if your hub is at another "
            "address. Run the same command again: files that were uploaded are not uploaded twice."
        ) from error
    return str(commit.commit_url)


def _no_token(endpoint: str) -> str:
    return (
        f"{endpoint} takes no upload without a valid token that may write. Set HF_TOKEN, or log in once with "
        "`hf auth login`."
    )
