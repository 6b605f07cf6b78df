"""What kernels run before a page: `%%bash` whose output comes in one piece, in no colours, and whose failure counts."""

import os
import subprocess

from IPython.core.magic import register_cell_magic

for _name in "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "TERMINAL_WIDTH":
    os.environ.pop(_name, None)  # Jupyter sets the first two


@register_cell_magic
def bash(line: str, cell: str) -> None:
    """Run a cell in bash."""
    if line:
        raise ValueError(f"%%bash takes no options here; got {line!r}")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", cell], capture_output=True, text=True)
    print(done.stdout.strip("\n"))
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
