"""Facts about the machine that numbers need to mean something: no host name, no paths."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("occamap", "numpy", "scipy", "numba", "scikit-learn", "ott-jax", "jax", "POT")


def facts() -> dict[str, str]:
    """What was measured on, with which versions, and how busy it was, in the order to print it."""
    return {
        "date": datetime.date.today().isoformat(),
        "CPU": cpu(),
        "cores": str(cores()),
        "memory": f"{total_memory() / 1e9:.1f} GB" if total_memory() else "unknown",
        "OS": f"{platform.system()} {platform.machine()}",
        "load before the run": load(),
        "Python": platform.python_version(),
        **{name: installed(name) for name in PACKAGES},
    }


def cpu() -> str:
    """The CPU's model, or its architecture where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total_memory() -> int:
    """Bytes of RAM, 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def load() -> str:
    """The load average over the last minute: on a quiet machine well below the number of cores."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
