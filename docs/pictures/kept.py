"""Run the notebooks of real cells in place, so that they keep the outputs of this code.

`OCCAMAP_DATA=… python docs/pictures/kept.py`; needs the extra `docs`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

DOCS = Path(__file__).parents[1]


def executed(name: str, folder: str | os.PathLike[str]) -> NotebookNode:
    """The notebook with the outputs of a run in that folder, and nothing that differs from run to run."""
    notebook = nbformat.read(DOCS / name, as_version=4)
    there = {"metadata": {"path": str(folder)}}
    asked = {"timeout": 600, "kernel_name": "python3", "coalesce_streams": True}  # else time decides where text ends
    NotebookClient(notebook, resources=there, **asked).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> int:
    if not os.environ.get("OCCAMAP_DATA"):
        print("OCCAMAP_DATA must name the directory of kang_ifnb.h5ad", file=sys.stderr)
        return 2
    for path in sorted(DOCS.glob("*.ipynb")):
        with TemporaryDirectory() as folder:
            nbformat.write(executed(path.name, folder), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
