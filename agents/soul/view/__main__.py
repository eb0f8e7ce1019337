"""`soul view FOLDER`: look at trainings and evaluations in a browser, while they run and after.

    soul view outputs/
    soul view outputs/ditto-1 --export 1,5,10-20 --out steps.html

The first form serves the folder on this machine only, at an address that it prints; Ctrl-C ends it. The second writes
one HTML file with all curves and the sessions of these steps, which needs no server.
"""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from soul.cli.arguments import existing_folder, output_file, port
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.view.export import export_steps, only_training, steps
from soul.view.page import served_page
from soul.view.server import ViewServer


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul view", description=__doc__)
    parser.add_argument("folder", type=existing_folder, help="a run's folder, or one above several")
    parser.add_argument("--port", type=port, default=0, help="port of the server (default: any free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, but open no browser")
    parser.add_argument("--export", type=steps, metavar="STEPS", help="write these steps to a file: 1,5,10-20")
    parser.add_argument("--out", type=output_file, metavar="FILE.html", help="the file for --export")
    given = parser.parse_args(arguments)
    if given.export is None:
        if given.out:
            raise BadSettings("soul view: --out belongs to --export; name the steps, as in --export 1,5.")
        serve(given)
    elif given.port or given.no_browser:
        raise BadSettings("soul view: --port and --no-browser belong to the server; leave them out with --export.")
    elif given.out is None:
        raise BadSettings("soul view --export: name the file to write, as in --out steps.html.")
    else:
        file = export_steps(only_training(given.folder), given.export, given.out)
        print(f"{file} ({file.stat().st_size / 1e6:,.1f} MB)")


def serve(given: argparse.Namespace) -> None:
    """Serve a folder until Ctrl-C.

    Raises:
        BadSettings: the port is taken.
    """
    folder: Path = given.folder
    page = served_page(f"{folder.resolve().name} - soul view")
    server = ViewServer(folder, (page.html, page.policy), given.port)
    try:
        print(f"{folder} is at {server.address}\nOnly this machine reaches it. Ctrl-C ends it.", flush=True)
        if not given.no_browser and _has_display():
            webbrowser.open(server.address)
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


def _has_display() -> bool:
    """Check whether a browser can open a window; without one, `webbrowser` would start a browser in the terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    sys.exit(main())
