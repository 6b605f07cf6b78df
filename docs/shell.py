"""What kernels run before a page: `%%bash` whose output comes in one piece, in no colours, and whose failure counts."""

import os
import subprocess

from IPython.core.magic import register_cell_magic

for _name in "FORCE_COLOR", "CLICOLOR_FORCE":  # Jupyter sets them
    os.environ.pop(_name, None)


@register_cell_magic
def bash(line: str, cell: str) -> None:
    """Run a cell in bash."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", cell], capture_output=True, text=True)
    print(done.stdout.strip("\n"))
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
