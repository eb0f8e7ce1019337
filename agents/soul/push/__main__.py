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

import sys
from collections.abc import Sequence

from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.push.contents import checkpoint_upload, data_upload
from soul.push.upload import Upload, check_name, push, require_hub


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
    require_hub()
    check_name(given.repo)
    upload = data_upload(given.folder, given.repo) if given.data else checkpoint_upload(given.folder)
    show(upload, given.repo, given.dry_run)
    upload.check_private(given.private)
    if not given.dry_run:
        print(push(upload, given.repo, given.private))


def show(upload: Upload, repo: str, dry_run: bool) -> None:
    """Print what is uploaded, what stays here, and what the user should know."""
    sizes = upload.sizes
    doing = "Would upload" if dry_run else "Uploading"
    print(f"{doing} {upload.folder} to the {upload.kind} {repo}, {sum(sizes.values()) / 1e9:.3f} GB:")
    for name, size in sizes.items():
        print(f"  {name}  {size:,} bytes")
    if upload.left_out:
        print(f"Not uploaded: {', '.join(upload.left_out)}")
    for remark in upload.remarks:
        print(remark)
    for why in upload.withheld:
        print(f"Only for a private repository: {why}")


if __name__ == "__main__":
    sys.exit(main())
