"""The Ray engine: cells as tasks of a cluster, each with its share of a GPU, until the cluster has done them all.

The driver's runner decides what is ready; Ray queues it and decides when and where. A worker or a whole machine that is
lost is reported as such and its cell is tried again elsewhere: from its last checkpoint in a shared folder, from the
beginning behind a URL. The store must be one that all machines see. One driver works on a store at a time.

Ray is an extra: ``pip install indelible[ray]``. Each machine needs this package, and the data sets.
"""

import os
import time
from collections.abc import Sequence
from typing import Any, Self

import torch

from indelible.base.errors import InputError
from indelible.base.progress import silenced
from indelible.bench.do_cell import Outcome
from indelible.bench.local_engine import worker_environment
from indelible.bench.runner import Job

_QUEUE = 100_000


class RayEngine:
    """A Ray cluster.

    Args:
        address: Of an existing cluster; ``"auto"`` finds one that runs here; None starts one on this machine.
        gpus: GPUs that a cell takes; a fraction lets several share one.
        cpus: CPUs that a cell takes.
        threads: CPU threads of a cell; by default as many as CPUs.
    """

    def __init__(
        self, address: str | None = None, *, gpus: float | None = None, cpus: float | None = None,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        try:
            import ray
        except ImportError as error:
            raise InputError("the engine 'ray' needs Ray: pip install 'indelible[ray]'") from error
        self.ray: Any = ray
        self.address, self.gpus, self.cpus = address, gpus or 0.0, 1.0 if cpus is None else cpus
        if self.cpus < 0 or self.gpus < 0 or self.cpus + self.gpus == 0:
            raise InputError(f"a cell needs CPUs or GPUs, got --cpus {cpus} and --gpus {gpus}.")
        self.threads = threads or max(1, int(self.cpus))
        self._task: Any = None
        self._jobs: dict[Any, str] = {}
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
        for reference in self._jobs:
            self.ray.cancel(reference, force=True)
        self._jobs = {}
        if self._started:
            self.ray.shutdown()

    @property
    def free(self) -> int:
        """How many more jobs it takes: as many as there are, since Ray queues them and may start machines for them."""
        return _QUEUE - len(self._jobs)

    def submit(self, job: Job) -> None:
        """Hand a job to the cluster."""
        self._jobs[self._task.remote(job, self.threads)] = job.cell.digest

    def wait(self, seconds: float) -> Sequence[Outcome]:
        """Wait for outcomes, at most so long; return those that arrived."""
        if not self._jobs:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        outcomes = []
        for reference in ready:
            digest = self._jobs.pop(reference)
            try:
                outcomes.append(self.ray.get(reference))
            except self.ray.exceptions.RayError as error:
                said = " ".join(str(error).split())[:300]
                outcomes.append(Outcome(digest=digest, state="lost", error=said))
        return outcomes


def _do(job: Job, threads: int) -> Outcome:
    """Do a job; runs in a worker of the cluster."""
    torch.set_num_threads(threads)
    with silenced():
        return job.do()
