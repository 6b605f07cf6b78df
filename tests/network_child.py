"""Every command and the main calls of the package, with a witness for what would leave the process.

Run as a script in an empty directory; prints a JSON object of how often each audited event was seen, by command.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from typing import Any

EVENTS = "socket.", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "urllib.", "http."
seen: dict[str, Counter[str]] = {}
doing = "import"


def witness(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(EVENTS) and event != "socket.gethostname":  # which this machine answers by itself
        seen.setdefault(doing, Counter())[f"{event} {arguments[:2]!r:.120}"] += 1


def command(words: str) -> None:
    """Run a command in this process; it must succeed."""
    global doing
    doing = f"occamap {words.split()[0]}"
    from occamap.cli.app import run

    seen.setdefault(doing, Counter())
    try:
        run(words.split())
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{words} ended with {end.code}") from end


def main() -> None:
    global doing
    import numpy as np

    import occamap as oc

    cells = oc.datasets.simulate_perturbation(80, 70, 60, effect=2.0, density=0.4, random_state=1).to_anndata()
    cells.write_h5ad("cells.h5ad")
    asked = "cells.h5ad --groupby condition --control control"
    command(f"fit {asked} --target treated --subsamples 2 --out fit")
    command(f"path {asked} --target treated --gammas 0.3,1 --splits 2 --out path")
    command(f"evaluate {asked} --costs sql2,l1 --gammas 0.3 --splits 1 --components 5 --markers 5 --out evaluation")
    command("report fit")
    command("transform fit/map.occamap cells.h5ad --out moved.h5ad")
    command("demo")
    command("reproduce prox --out figures")
    doing = "API"
    seen.setdefault(doing, Counter())
    X, Y = np.random.default_rng(0).normal(size=(2, 60, 5))
    model = oc.MongeMap(oc.L1(0.1)).fit(X, Y)
    model.save("map.occamap")
    oc.load("map.occamap").transform(X)
    oc.gamma_path(X, Y, oc.L1, [0.1, 0.3])
    oc.report("fit", "again.html")


if __name__ == "__main__":
    sys.addaudithook(witness)
    warnings.simplefilter("ignore")
    told, sys.stdout = sys.stdout, sys.stderr
    main()
    print(json.dumps(seen), file=told)
