"""`soul view FOLDER`: look at training runs and evaluations in a browser, while they run and after.

    soul view outputs/
    soul view outputs/ditto-1 --export ditto-1.html
    soul view outputs/ --site site/
    soul view outputs/ --play hitom --play sotopia=rows.parquet policy.base_url=http://127.0.0.1:8000/v1
    soul view --annotate labels/pairs
    soul view --review data/sim_rl_data

The first form serves the folder on this machine only, at an address that it prints; Ctrl-C ends it. --export writes one
HTML file, which needs no server. It has all numbers of a run, and the samples of an evaluation or the most telling
sessions of a training run. --site writes one file for each run. --play adds a playground, which calls the endpoints in
the settings. --annotate adds an annotation of `soul judge draw`, and --review a review of training files.
"""

from __future__ import annotations

import importlib
import os
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soul.cli.arguments import existing_folder, output_file, output_folder, port
from soul.cli.error_border import Parser, reports_errors
from soul.pages.api import Api
from soul.pages.catalogue import Catalogue
from soul.pages.export import export, write_site
from soul.pages.extensions import Comparisons, annotate, play, review
from soul.pages.page import served_page
from soul.pages.server import ViewServer


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul view", description=__doc__)
    add = parser.add_argument
    add("folder", type=existing_folder, nargs="?", help="a run's folder, or one above several")
    add("--port", type=port, default=0, help="port of the server (default: any free one)")
    add("--no-browser", action="store_true", help="print the address, but open no browser")
    add("--export", type=output_file, metavar="FILE.html", help="write a run to this file instead")
    add("--site", type=output_folder, metavar="OUT", help="write all runs to this folder instead")
    add("--play", action="append", metavar="TASK[=FILE]", help="add a playground with the rows of this task")
    add("--keep", type=output_folder, default=Path("outputs/play"), metavar="OUT", help="where --play keeps sessions")
    add("--annotate", type=existing_folder, metavar="FOLDER", help="add an annotation")
    add("--review", type=existing_folder, metavar="FOLDER", help="add a review of training files")
    given, settings = parser.parse_known_args(arguments)
    if unknown := [one for one in settings if one.startswith("-") or "=" not in one]:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if settings and not given.play:
        parser.error(f"{settings[0]} is a setting of the playground: give --play TASK, too")
    root = given.folder or given.annotate or given.review
    if root is None and not given.play:
        parser.error("give the folder of a run, or one above several")
    if given.export is None and given.site is None:
        serve(root or given.keep, given, settings)
        return
    if given.play or given.annotate or given.review:
        parser.error("--play, --annotate and --review need a server: leave --export and --site out")
    for file in [export(root, given.export)] if given.export else write_site(root, given.site):
        print(f"{file} ({file.stat().st_size / 1e6:,.1f} MB)")


def extensions(given: Namespace, settings: Sequence[str]) -> dict[str, Any]:
    """What was asked for beside the runs. Modules are imported by name, because some of them import the pages."""
    found: dict[str, Any] = {}
    if given.play:
        playground: Any = importlib.import_module("soul.playground").Playground
        files = {task: Path(file) if file else None for task, _, file in (one.partition("=") for one in given.play)}
        found["play"] = play(playground.from_arguments(files, settings, given.keep))
    if given.annotate:
        found["annotate"] = annotate(importlib.import_module("soul.annotate").Annotation(given.annotate))
    if given.review:
        found["review"] = review(importlib.import_module("soul.rows.review").Review(given.review))
    return found


def serve(folder: Path, given: Namespace, settings: Sequence[str]) -> None:
    """Serve a folder until Ctrl-C; raises BadSettings if the port is taken, or a setting of the playground is wrong."""
    catalogue, more = Catalogue(folder), extensions(given, settings)
    page = served_page(f"{folder.resolve().name} - soul view", extensions=list(more))
    server = ViewServer(Api(catalogue, {"compare": Comparisons(catalogue), **more}), page, given.port)
    try:
        print(f"{folder} is at {server.address}\nOnly this machine reaches it. Ctrl-C ends it.", flush=True)
        # Without a display, `webbrowser` would start a browser in the terminal.
        if not given.no_browser and (sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
            webbrowser.open(server.address)
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
