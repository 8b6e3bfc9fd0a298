"""The local engine: worker processes of this machine, each with its own cores or GPU, that take one cell after another.

Threads are pinned: two workers of two threads each on two cores run several times slower than two of one. Freed
memory is kept between the steps of a cell and handed back between cells (:mod:`indelible.base.allocator`).

A worker that dies (killed, out of memory) costs its cell's last checkpoint interval: the cell is reported as lost and a
new worker takes its place. Workers end when the process that started them ends, however that happens.
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

from indelible.base.allocator import hand_back_memory, keep_freed_memory
from indelible.base.errors import InputError
from indelible.base.progress import silenced
from indelible.bench.engines import Job
from indelible.bench.work import Outcome

__all__ = ["LocalEngine", "default_workers", "worker_environment"]

_GRACE_SECONDS = 30.0


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Return how many workers fit: one a GPU, or one a core."""
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
    pipe: Connection
    job: Job | None = None


class LocalEngine:
    """Processes of this machine.

    Args:
        workers: How many; by default one a GPU, or one a core.
        threads: CPU threads of each; by default what OMP_NUM_THREADS says, or the cores, shared out.
    """

    def __init__(self, workers: int | None = None, threads: int | None = None) -> None:
        self.workers = default_workers() if workers is None else workers
        if self.workers < 1 or (threads is not None and threads < 1):
            raise InputError(f"workers and threads must be positive, but are {workers} and {threads}.")
        self.threads = threads or default_threads(self.workers)
        self._pool: list[_Worker] = []

    def __enter__(self) -> Self:
        self._pool = [self._start(number) for number in range(self.workers)]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._pool:
            with suppress(OSError, ProcessLookupError):
                if worker.job is None:
                    worker.pipe.send(None)
                else:
                    # Ask for a checkpoint: the training loop turns the first interruption into one.
                    os.kill(worker.process.pid, signal.SIGINT)
        for worker in self._pool:
            worker.process.join(_GRACE_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self._pool = []

    @property
    def free(self) -> int:
        """How many workers have nothing to do."""
        return sum(worker.job is None for worker in self._pool)

    def submit(self, job: Job) -> None:
        """Give a job to a free worker."""
        worker = next(worker for worker in self._pool if worker.job is None)
        worker.job = job
        with suppress(BrokenPipeError):  # a dead worker is found, and replaced, in `wait`
            worker.pipe.send(job)

    def wait(self, seconds: float) -> Sequence[Outcome]:
        """Wait for outcomes, at most so long; return those that came."""
        busy = [worker for worker in self._pool if worker.job is not None]
        ready = wait([*(worker.pipe for worker in busy), *(worker.process.sentinel for worker in busy)], seconds)
        outcomes = []
        for number, worker in enumerate(self._pool):
            job = worker.job
            if job is None or (worker.pipe not in ready and worker.process.sentinel not in ready):
                continue
            try:
                outcomes.append(worker.pipe.recv())
                worker.job = None
            except (EOFError, OSError):
                worker.process.join()
                why = f"its worker ended with code {worker.process.exitcode}"
                outcomes.append(Outcome(digest=job.digest, state="lost", error=why))
                worker.pipe.close()
                self._pool[number] = self._start(number)
        return outcomes

    def _start(self, number: int) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        gpus = torch.cuda.device_count()
        process = context.Process(target=_work, args=(theirs, self.threads), daemon=True, name=f"worker-{number}")
        own = {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus > 1 else {}
        with _environment({**worker_environment(self.threads), **own}):
            process.start()
        theirs.close()
        return _Worker(process, ours)


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


def _work(pipe: Connection, threads: int) -> None:
    """Take jobs until there are no more; the life of a worker."""
    from indelible.bench.cells import Cell
    from indelible.bench.store import open_store
    from indelible.bench.work import do_cell

    # Ctrl-C in a terminal goes to a whole group of processes; the engine asks its workers itself, once.
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    keep_freed_memory()
    with silenced():
        while True:
            try:
                job = pipe.recv()
            except (EOFError, OSError, KeyboardInterrupt):
                return
            if job is None:
                return
            try:
                store = open_store(job.store, locking=job.locking, patience=job.patience)
                cell = Cell.from_json(job.cell)
                outcome = do_cell(store, cell, device=job.device, more=job.more, dead=job.dead)
            except KeyboardInterrupt:
                return
            hand_back_memory()
            pipe.send(outcome)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
