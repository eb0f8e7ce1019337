"""`soul push FOLDER OWNER/NAME [--data] [--private] [--dry-run]`: upload a checkpoint or training files to the hub.

    soul push outputs/run/global_step_50 you/my-simulator --private
    soul push --data data you/my-training-files --private

FOLDER is a checkpoint, the folder of a run (its latest checkpoint), a model or an adapter. The weights, the tokenizer
and README.md, the model card, are uploaded; the state to resume from stays here.

With --data, FOLDER holds the files that `python -m data.train` wrote. They are uploaded as a dataset, with a README.md
that is made from their data cards. A file whose sources do not let you publish it goes to a private repository only.

A file that looks like a key or holds one is refused. If the upload breaks off, the same command continues. Token and
address of the hub are those of huggingface_hub: HF_TOKEN or `hf auth login`, HF_ENDPOINT.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings, RunFailed, SoulError, one_line
from soul.evaluate.run.checkpoint import find_weight_problem, latest_checkpoint
from soul.push.dataset_card import dataset_card
from soul.push.keys import like_keys
from soul.rows import data_card
from soul.rows.data_card import DataCard

CARD = "README.md"
TRAINING = "sim_rl_data"  # the folder below DATA_DIR that holds training files
# What a run needs to resume, and nobody else needs: optimizer, shards, the data's position, the list of files.
_STATE = ("actor", "data.pt", "manifest.json", "transfer_queue")


class NotPushable(SoulError):
    """A folder is nothing to upload, or holds something that must not be published."""


class PushFailed(RunFailed):
    """The hub did not take the upload."""


class Upload(NamedTuple):
    """The files of an upload.

    Attributes:
        files: their paths on the hub -> the files here, or the content of a file that is made for the hub.
        withheld: why the files may only go to a private repository; empty if they may go to a public one.
    """

    kind: Literal["model", "dataset"]
    folder: Path
    files: Mapping[str, Path | bytes]
    withheld: tuple[str, ...] = ()


def checkpoint_upload(path: Path) -> Upload:
    """The upload of a checkpoint, a model folder, an adapter, or the latest checkpoint of a run.

    Raises:
        NotPushable: it has no whole weights. BadCheckpoint: the run's latest checkpoint is missing.
    """
    folder = latest_checkpoint(path)
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        raise NotPushable(
            f"{folder} has neither config.json nor adapter_config.json, so it is not a model. Pass the path of a "
            "global_step_N, of a run's folder, of a model or of an adapter."
        )
    if problem := find_weight_problem(folder):
        raise NotPushable(f"{folder}: {problem}")
    entries = [entry for entry in sorted(folder.iterdir()) if entry.name not in _STATE and entry.name[0] != "."]
    files = (file for entry in entries for file in (sorted(entry.rglob("*")) if entry.is_dir() else [entry]))
    return Upload("model", folder, {file.relative_to(folder).as_posix(): file for file in files if file.is_file()})


def data_upload(path: Path, repo: str) -> Upload:
    """The upload of the training files in a folder: DATA_DIR, or the folder of the files itself.

    A file goes with its card; a file without one stays here, as nobody can tell where its rows come from. So do the
    evaluation files: a public copy ends in other people's training data.

    Raises:
        NotPushable: no file has a card. BadRow: a card cannot be read, or describes another file.
    """
    folder = path / TRAINING if (path / TRAINING).is_dir() else path
    cards = {file: card for file in sorted(folder.glob("*.parquet")) if (card := data_card.read(file)) is not None}
    if not cards:
        raise NotPushable(
            f"{folder} has no training file with a data card. `python -m data.train SOURCES --out DATA` writes both; "
            "name DATA or the folder of its files."
        )
    made = {CARD: dataset_card(repo, {file.name: card for file, card in cards.items()}).encode()}
    files = {each.name: each for file in cards for each in (file, data_card.path_of(file))}
    return Upload("dataset", folder, {**made, **files}, tuple(_withheld(cards)))


def _withheld(cards: Mapping[Path, DataCard]) -> Iterator[str]:
    for file, card in cards.items():
        if not card.licences:
            yield f"{file.name}: its card states no licences, so build it again"
        for terms in card.licences:
            if terms.share != "yes":
                verdict = "must not be published" if terms.share == "no" else "it is unclear whether you may publish it"
                yield f"{file.name}: {terms.source} ({terms.licence}): {verdict}, because {terms.why}"


def check(upload: Upload, private: bool) -> None:
    """Check that the files hold no key, and that those which must not be published go to a private repository.

    Raises:
        NotPushable: they do not.
    """
    here = [name for name, content in upload.files.items() if isinstance(content, Path)]
    if keys := like_keys(upload.folder, here):
        places = "; ".join(f"{name}, {place}" for name, place in keys.items())
        raise NotPushable(
            f"{upload.folder}: {places}: this looks like a key or a password. Nothing was uploaded. Remove the line, "
            "the row or the file."
        )
    if upload.withheld and not private:
        raise NotPushable(
            f"{upload.folder}: {'; '.join(upload.withheld)}. These files cannot go to a public repository: take them "
            "out of the folder, or name a private repository and add --private. Nothing was uploaded."
        )


def push(upload: Upload, repo: str, private: bool) -> str:
    """Create the repository if there is none, upload the files in one commit, and return the commit's address.

    Large files go first, each by itself, and the commit names them. So a broken upload leaves the repository as it was,
    and the same command sends only the files that had not arrived.

    Args:
        private: a new repository is private; one that exists stays as it is.

    Raises:
        PushFailed: the hub refuses the token, the repository or a file, or cannot be reached.
        NotPushable: the repository is public and the files must not be published.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="ditto-soul")
    added = [CommitOperationAdd(name, content) for name, content in upload.files.items()]
    try:
        api.create_repo(repo, repo_type=upload.kind, private=private, exist_ok=True)
        if upload.withheld:
            check(upload, bool(api.repo_info(repo, repo_type=upload.kind).private))
        message = f"Upload {upload.folder.name}"
        return str(api.create_commit(repo, added, commit_message=message, repo_type=upload.kind).commit_url)
    except SoulError:
        raise
    except Exception as error:  # noqa: BLE001 - the library raises a dozen kinds, all of which mean this
        cause = f" ({one_line(error.__cause__, 300)})" if error.__cause__ else ""
        raise PushFailed(
            f"{api.endpoint} did not take {repo}: {one_line(error, 400)}{cause}. The token (HF_TOKEN, or `hf auth "
            "login`) has to be valid and may write; HF_ENDPOINT names another hub. Run the same command again: files "
            "that have arrived are not uploaded twice."
        ) from None


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul push", description=__doc__)
    parser.add_argument(
        "folder", type=existing_folder, metavar="FOLDER", help="a checkpoint, run, model, adapter, data"
    )
    parser.add_argument("repo", metavar="OWNER/NAME", help="the repository; it is created if there is none")
    parser.add_argument("--data", action="store_true", help="FOLDER holds training files of `python -m data.train`")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--dry-run", action="store_true", help="say what would be uploaded, and end")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("huggingface_hub") is None:
        raise BadSettings("soul push needs huggingface_hub, which is not installed: pip install 'ditto-soul[hub]'")
    if "/" not in given.repo:
        raise BadSettings(f"{given.repo}: write OWNER/NAME, with your user name or organisation as the owner.")
    upload = data_upload(given.folder, given.repo) if given.data else checkpoint_upload(given.folder)
    print(f"{'Would upload' if given.dry_run else 'Uploading'} {upload.folder} to the {upload.kind} {given.repo}:")
    for name, content in upload.files.items():
        print(f"  {name}  {len(content) if isinstance(content, bytes) else content.stat().st_size:,} bytes")
    left_out = sorted({entry.name for entry in upload.folder.iterdir()} - {name.split("/")[0] for name in upload.files})
    if left_out:
        print(f"Not uploaded: {', '.join(left_out)}")
    if CARD not in upload.files:
        print(f"There is no {CARD}: the page on the hub will be empty. Training writes one beside each checkpoint.")
    check(upload, given.private)
    if not given.dry_run:
        print(push(upload, given.repo, given.private))


if __name__ == "__main__":
    sys.exit(main())
