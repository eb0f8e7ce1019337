"""`soul push FOLDER OWNER/NAME [--private] [--dry-run]`: upload a checkpoint and its card to the Hugging Face hub.

    soul push outputs/run/global_step_50 you/my-simulator --private

FOLDER is a checkpoint, the folder of a run (its latest checkpoint), a model or an adapter. The weights, the tokenizer
and README.md, the model card, are uploaded; the state to resume from stays here. Token and address of the hub are those
of huggingface_hub: HF_TOKEN or `hf auth login`, HF_ENDPOINT.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from soul.cli.arguments import existing_folder
from soul.cli.error_border import Parser, reports_errors
from soul.push.checkpoint_files import Upload, checkpoint_upload
from soul.push.hub import check_name, push, require_hub


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul push", description=__doc__)
    parser.add_argument("folder", type=existing_folder, metavar="FOLDER", help="a checkpoint, run, model or adapter")
    parser.add_argument("repo", metavar="OWNER/NAME", help="the repository; it is created if there is none")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--dry-run", action="store_true", help="say what would be uploaded, and end")
    given = parser.parse_args(arguments)
    require_hub()
    check_name(given.repo)
    upload = checkpoint_upload(given.folder)
    show(upload, given.repo, given.dry_run)
    if not given.dry_run:
        print(push(upload, given.repo, given.private))


def show(upload: Upload, repo: str, dry_run: bool) -> None:
    """Print what is uploaded, what stays here, and what the user should know."""
    print(f"{'Would upload' if dry_run else 'Uploading'} {upload.folder} to {repo}, {upload.bytes / 1e9:.3f} GB:")
    for name in upload.files:
        print(f"  {name}  {(upload.folder / name).stat().st_size:,} bytes")
    if upload.left_out:
        print(f"Not uploaded: {', '.join(upload.left_out)}")
    for remark in upload.remarks:
        print(remark)


if __name__ == "__main__":
    sys.exit(main())
