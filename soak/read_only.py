"""A child of the soak, in a mount namespace of its own: a program where home and installation cannot be written to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import occamap


def seal(folder: Path) -> None:
    """Nothing below can be written to any more."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)


def main() -> None:
    words = json.loads(sys.argv[1])["words"]
    with tempfile.TemporaryDirectory() as name:
        library, home = Path(name, "library"), Path(name, "home")
        home.mkdir()
        without = shutil.ignore_patterns("__pycache__")  # where numba finds kernels that were compiled before
        shutil.copytree(Path(occamap.__file__).parent, library / "occamap", ignore=without)
        for folder in (library, home):
            seal(folder)
        inside = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
        inside |= {"PYTHONPATH": str(library), "HOME": str(home)}
        done = subprocess.run(words, env=inside, check=False)
        for folder in (library, home):
            subprocess.run(["umount", str(folder)], check=True)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
