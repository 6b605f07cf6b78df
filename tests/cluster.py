"""A Dask cluster of real processes on this machine, a scheduler and workers, that can be killed one by one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 60.0  # seconds for a process to start


class Cluster:
    """Processes of this environment's Dask on 127.0.0.1; all are killed at the end. Logs are in `folder`."""

    def __init__(self, folder: Path, workers: int = 2, threads: int = 1) -> None:
        self.folder, self.threads, self.workers = folder, threads, list[subprocess.Popen[bytes]]()
        self._wanted, self._file = workers, folder / "scheduler.json"
        self._logs: dict[int, Path] = {}

    def __enter__(self) -> Cluster:
        self._scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show")
        try:
            self._until(self._file.exists)
            for _ in range(self._wanted):
                self._launch()
            self.wait(self._wanted)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where the scheduler listens."""
        return str(json.loads(self._file.read_text())["address"])

    def client(self) -> Any:
        """A client of its own: close it, or use it as a context."""
        import distributed

        for _ in range(9):
            with suppress(AssertionError):  # Dask's own, where the scheduler has more to say than that it is there
                return distributed.Client(self.address, timeout=PATIENCE, set_as_default=False)
        raise RuntimeError(f"no client can connect to {self.address}")

    def add(self, count: int = 1) -> None:
        """Start so many more workers, and wait for them."""
        for _ in range(count):
            self._launch()
        self.wait(len(self.alive()))

    def kill(self, number: int) -> None:
        """End a worker at once, as a machine that is switched off does; it is told by its number or by its address."""
        self._end(self.workers[number])

    def kill_at(self, address: str) -> None:
        """End the worker of this address at once."""
        with self.client() as client:
            pid = client.run(os.getpid, workers=[address])[address]
        self._end(next(worker for worker in self.workers if worker.pid == pid))

    def kill_scheduler(self) -> None:
        self._end(self._scheduler)

    def alive(self) -> list[int]:
        """The numbers of the workers that run."""
        return [number for number, worker in enumerate(self.workers) if worker.poll() is None]

    def restore(self, count: int) -> None:
        """Kill or start workers until there are so many."""
        for number in self.alive()[count:]:
            self.kill(number)
        self.add(count - len(self.alive()))

    def wait(self, count: int) -> None:
        """Until the scheduler knows of so many workers, no more and no fewer."""
        with self.client() as client:
            self._until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == count)

    def tasks(self) -> dict[str, int]:
        """How many tasks the scheduler knows of, by their state."""

        def states(dask_scheduler: Any) -> list[str]:
            return [task.state for task in dask_scheduler.tasks.values()]

        with self.client() as client:
            return dict(Counter(client.run_on_scheduler(states)))

    def close(self) -> None:
        for process in [*self.workers, self._scheduler]:
            self._end(process)

    def _launch(self) -> None:
        where = self.folder / f"worker-{len(self.workers)}"
        options = "--nthreads", str(self.threads), "--no-nanny", "--host", "127.0.0.1", "--memory-limit", "0"
        self.workers.append(self._start("worker", *options, "--local-directory", str(where)))

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        options += "--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(self._file)
        words = [sys.executable, "-m", "dask", what, *options]
        log = self.folder / f"{what}-{len(self._logs)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(words, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
        self._logs[process.pid] = log
        return process

    def _until(self, true: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not true():
            gone = [process for process in (self._scheduler, *self.workers) if process.poll() not in (None, -9)]
            if gone or time.monotonic() > deadline:
                logs = "\n".join(f"--- {path.name}\n{path.read_text()}" for path in self._logs.values())
                raise RuntimeError(f"the cluster did not start:\n{logs}")
            time.sleep(0.05)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
