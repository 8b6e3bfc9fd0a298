"""Engines, which do work elsewhere: in processes of this machine, or as tasks of a Ray cluster."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from typing import Any, Self, TypeVar

import torch

from indelible.base.errors import InputError
from indelible.base.imports import needed
from indelible.base.progress import silenced

_GRACE_SECONDS = 30.0
T = TypeVar("T")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(workers: int) -> int:
    """Return the threads of each of so many workers: what OMP_NUM_THREADS says, or the cores, shared out."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdigit() and int(said) > 0 else max(1, cores() // workers)


def worker_environment(threads: int) -> dict[str, str]:
    """Return the environment of a worker with so many threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    # Threads that wait sleep: where cores are shared with others, spinning starves the one that is waited for.
    return {**dict.fromkeys(names, str(threads)), "OMP_WAIT_POLICY": "PASSIVE"}


class LocalEngine:
    """Processes of this machine, one for each cell, with its own cores or GPU.

    Threads are pinned: two workers of two threads each on two cores run several times slower than two of one. A process
    ends with its cell, so that what one cell has left in memory costs the next one nothing. A worker that dies (killed,
    out of memory) costs its cell's last checkpoint interval: the cell is done again. Workers end when the process
    that started them ends, however that happens.

    Args:
        workers: How many at a time; by default one per GPU, or one per core.
        threads: CPU threads of each; by default what OMP_NUM_THREADS says, or the cores, shared out.
    """

    def __init__(self, workers: int | None = None, threads: int | None = None) -> None:
        self.workers = (torch.cuda.device_count() or cores()) if workers is None else workers
        if self.workers < 1 or (threads is not None and threads < 1):
            raise InputError(f"workers and threads must be positive, got {workers} and {threads}.")
        self.threads = threads or default_threads(self.workers)
        self._running: dict[int, Any] = {}  # processes, by number of the worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        processes = list(self._running.values())
        for process in processes:
            with suppress(OSError):
                # Ask for a checkpoint: the training loop turns the first interruption into one.
                os.kill(process.pid, signal.SIGINT)
        for process in processes:
            process.join(_GRACE_SECONDS)
            process.kill()

    @property
    def free(self) -> int:
        """How many more jobs it takes now."""
        return self.workers - len(self._running)

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Start a worker; the future has its result, or why there is none."""
        number = next(number for number in range(self.workers) if number not in self._running)
        gpus = torch.cuda.device_count()
        own = {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus > 1 else {}
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _live_as_worker)
        others, before = multiprocessing.active_children(), os.environ.copy()
        os.environ.update({**worker_environment(self.threads), **own})
        try:
            future = pool.submit(_do, work, self.threads)
        finally:
            os.environ.clear()
            os.environ.update(before)
        (self._running[number],) = set(multiprocessing.active_children()) - set(others)
        pool.shutdown(wait=False)  # when its one job is done
        future.add_done_callback(lambda _done: self._running.pop(number))
        return future


def _live_as_worker() -> None:
    """Prepare a local worker."""
    # Ctrl-C in a terminal goes to a whole group of processes; the engine asks its workers itself, once.
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _do(work: Callable[[], T], threads: int) -> T:
    """Do the work in a worker."""
    torch.set_num_threads(threads)
    with silenced():
        return work()


class RayEngine:
    """A Ray cluster: cells are tasks, each with its share of a GPU.

    The driver's runner decides what is ready; Ray queues it and decides when and where. A worker or a whole machine
    that is lost is reported as such and its cell is tried again elsewhere: from its last checkpoint in a shared folder,
    from the beginning behind a URL. The store must be one that all machines see. One driver works on a store at a time.
    Each machine needs this package, and the data sets.

    Args:
        address: Of an existing cluster; ``"auto"`` finds one that runs here; None starts one on this machine.
        gpus: GPUs that a cell takes; a fraction lets several share one.
        cpus: CPUs that a cell takes.
        threads: CPU threads of a cell; by default as many as CPUs.
    """

    free = 100_000  # it takes all jobs that there are, since Ray queues them and may start machines for them

    def __init__(
        self, address: str | None = None, *, gpus: float | None = None, cpus: float | None = None,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        self.ray = needed("ray", extra="ray", what="the engine 'ray'")
        self.address, self.gpus, self.cpus = address, gpus or 0.0, 1.0 if cpus is None else cpus
        if self.cpus < 0 or self.gpus < 0 or self.cpus + self.gpus == 0:
            raise InputError(f"a cell needs CPUs or GPUs, got --cpus {cpus} and --gpus {gpus}.")
        self.threads = threads or max(1, int(self.cpus))
        self._task: Any = None
        self._tasks: list[Any] = []
        self._started = False

    def __enter__(self) -> Self:
        if not self.ray.is_initialized():
            # Failures of cells are in the store; what workers print would only break the table.
            self.ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
            self._started = True
        environment = {**worker_environment(self.threads), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self._task = self.ray.remote(_do).options(
            num_cpus=self.cpus, num_gpus=self.gpus,
            max_retries=0,  # the runner counts attempts itself
            runtime_env={"env_vars": environment},
        )  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        for task in self._tasks:
            self.ray.cancel(task, force=True)
        if self._started:
            self.ray.shutdown()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Hand work to the cluster; the future has its result, or why there is none."""
        self._tasks.append(self._task.remote(work, self.threads))
        future: Future[T] = self._tasks[-1].future()
        return future
