"""`soul view FOLDER`: look at training runs and evaluations in a browser, while they run and after.

    soul view outputs/
    soul view outputs/ditto-1 --export ditto-1.html
    soul view outputs/ --site site/

The first form serves the folder on this machine only, at an address that it prints; Ctrl-C ends it. The others need no
server: one HTML file with all numbers of a run, and with all samples of an evaluation or the most telling sessions of a
training run; and a folder with such a file for each run.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from soul.cli.arguments import existing_folder, output_file, output_folder, port
from soul.cli.error_border import Parser, reports_errors
from soul.pages.api import Api
from soul.pages.catalogue import Catalogue
from soul.pages.export import export, write_site
from soul.pages.page import served_page
from soul.pages.server import ViewServer


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul view", description=__doc__)
    parser.add_argument("folder", type=existing_folder, help="a run's folder, or one above several")
    parser.add_argument("--port", type=port, default=0, help="port of the server (default: any free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, but open no browser")
    parser.add_argument("--export", type=output_file, metavar="FILE.html", help="write a run to this file instead")
    parser.add_argument("--site", type=output_folder, metavar="OUT", help="write all runs to this folder instead")
    given = parser.parse_args(arguments)
    if given.export is None and given.site is None:
        serve(given.folder, given.port, opens=not given.no_browser and _has_display())
        return
    files = [export(given.folder, given.export)] if given.export else write_site(given.folder, given.site)
    for file in files:
        print(f"{file} ({file.stat().st_size / 1e6:,.1f} MB)")


def serve(folder: Path, port_: int, opens: bool) -> None:
    """Serve a folder until Ctrl-C.

    Raises:
        BadSettings: the port is taken.
    """
    server = ViewServer(Api(Catalogue(folder)), served_page(f"{folder.resolve().name} - soul view"), port_)
    try:
        print(f"{folder} is at {server.address}\nOnly this machine reaches it. Ctrl-C ends it.", flush=True)
        if opens:
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
