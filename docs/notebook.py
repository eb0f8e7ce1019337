"""Write examples/soul_api.ipynb, the page "SOUL from Python" (docs/python.md) as a notebook.

    python docs/notebook.py

A test checks that the notebook is the page, and runs it with nbclient.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
PAGE, NOTEBOOK = ROOT / "docs" / "python.md", ROOT / "examples" / "soul_api.ipynb"


def notebook() -> nbformat.NotebookNode:
    """One cell for each text and each block of code of the page; links to other pages lose their address."""
    parts = re.split(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    cells = []
    for number, part in enumerate(parts):
        text = part.strip()
        if number % 2:
            cells.append(new_code_cell(text, id=f"cell-{number}"))
        elif text:
            cells.append(new_markdown_cell(re.sub(r"\[([^]]+)\]\([^)]+\.md[^)]*\)", r"\1", text), id=f"cell-{number}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


if __name__ == "__main__":
    NOTEBOOK.write_text(nbformat.writes(notebook()) + "\n", encoding="utf-8")
