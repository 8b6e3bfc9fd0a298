"""The local engine: worker processes of this machine, one for each cell, with its own cores or GPU.

Threads are pinned: two workers of two threads each on two cores run several times slower than two of one. A process
ends with its cell, so that what one cell has left in memory costs the next one nothing.

A worker that dies (killed, out of memory) costs its cell's last checkpoint interval: the cell is reported as lost.
Workers end when the process that started them ends, however that happens.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Self

import torch

from indelible.base.allocator import keep_freed_memory
from indelible.base.errors import InputError
from indelible.base.progress import silenced
from indelible.bench.do_cell import Outcome
from indelible.bench.runner import Job

_GRACE_SECONDS = 30.0


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Return how many workers fit: one per GPU, or one per core."""
    return torch.cuda.device_count() or cores()


def default_threads(workers: int) -> int:
    """Return the threads of each of so many workers: what OMP_NUM_THREADS says, or the cores, shared out."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdigit() and int(said) > 0 else max(1, cores() // workers)


def worker_environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker with so many threads."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count,
        # Threads that wait sleep: where cores are shared with others, spinning starves the one that is waited for.
        "OMP_WAIT_POLICY": "PASSIVE",
    }  # fmt: skip


@dataclass
class _Worker:
    process: Any
    pipe: Connection  # its outcome comes through it
    job: Job


class LocalEngine:
    """Processes of this machine.

    Args:
        workers: How many at a time; by default one per GPU, or one per core.
        threads: CPU threads of each; by default what OMP_NUM_THREADS says, or the cores, shared out.
    """

    def __init__(self, workers: int | None = None, threads: int | None = None) -> None:
        self.workers = default_workers() if workers is None else workers
        if self.workers < 1 or (threads is not None and threads < 1):
            raise InputError(f"workers and threads must be positive, got {workers} and {threads}.")
        self.threads = threads or default_threads(self.workers)
        self._running: dict[int, _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._running.values():
            with suppress(OSError):
                # Ask for a checkpoint: the training loop turns the first interruption into one.
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in self._running.values():
            worker.process.join(_GRACE_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._running = {}

    @property
    def free(self) -> int:
        """How many more jobs it takes now."""
        return self.workers - len(self._running)

    def submit(self, job: Job) -> None:
        """Start a worker on a job."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        number = next(number for number in range(self.workers) if number not in self._running)
        gpus = torch.cuda.device_count()
        own = {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus > 1 else {}
        process = context.Process(target=_work, args=(theirs, job, self.threads), daemon=True)
        with _environment({**worker_environment(self.threads), **own}):
            process.start()
        theirs.close()
        self._running[number] = _Worker(process, ours, job)

    def wait(self, seconds: float) -> Sequence[Outcome]:
        """Wait for outcomes, at most so long; return those that arrived."""
        ready = wait([worker.pipe for worker in self._running.values()], seconds)
        outcomes = []
        for number, worker in list(self._running.items()):
            if worker.pipe not in ready:
                continue
            del self._running[number]
            try:
                outcome = worker.pipe.recv()
            except (EOFError, OSError):
                worker.process.join()
                why = f"its worker ended with code {worker.process.exitcode}"
                outcome = Outcome(digest=worker.job.cell.digest, state="lost", error=why)
            worker.process.join()
            worker.pipe.close()
            outcomes.append(outcome)
        return outcomes


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(pipe: Connection, job: Job, threads: int) -> None:
    """Do a job; the life of a worker."""
    # Ctrl-C in a terminal goes to a whole group of processes; the engine asks its workers itself, once.
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    keep_freed_memory()
    with silenced(), suppress(KeyboardInterrupt):
        pipe.send(job.do())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
