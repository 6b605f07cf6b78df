"""A child of the soak, in a mount namespace of its own: a job on a disk that is too small, and again with room."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from soak.commands import JOBS, finish, incomplete, unsound


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)


def main() -> None:
    asked = json.loads(sys.argv[1])
    job, like, out = JOBS[asked["job"]], Path(asked["like"]), Path(tempfile.mkdtemp())
    mount(out, "ro" if asked["size"] == "read-only" else f"size={asked['size']}")
    target = out / "run"
    done = finish(job.command(Path(asked["data"]), target))
    wrong, ending = unsound(target, job, like), "had room"
    if done.returncode:
        ending = "refused" if done.returncode == 2 else "one sentence"
        lines = done.stderr.strip().splitlines()
        told = "Read-only file system" if asked["size"] == "read-only" else "No space left on device"
        if len(lines) != 1 or told not in lines[0]:
            wrong.append(f"exit {done.returncode}: {done.stderr[-500:]}")
        wrong += [f"{path.name} is left over" for path in out.rglob("*.occamap-part")]
    if asked["size"] != "read-only":
        subprocess.run(["mount", "-o", "remount,size=64m", str(out)], check=True)
        again = finish(job.command(Path(asked["data"]), target))
        wrong += incomplete(target, job, like) if not again.returncode else [f"with room: {again.stderr[-500:]}"]
        ending += ", same tables with room" if done.returncode else ""
    subprocess.run(["umount", str(out)], check=True)
    out.rmdir()
    print(json.dumps({"ending": ending, "wrong": wrong}))


if __name__ == "__main__":
    main()
