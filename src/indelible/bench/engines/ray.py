"""The Ray engine: cells as tasks of a cluster, each with its share of a GPU, until the cluster has done them all.

The driver's runner decides what is ready; Ray decides where. A worker or a whole machine that is lost is reported as
such and its cell is tried again elsewhere, from the last checkpoint in the store: the store must therefore be one that
all machines see (a shared folder or a URL), and cells are locked by leases, which expire when their owner is gone.

Ray is an extra: ``pip install indelible[ray]``. Each machine needs this package, and the data sets.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

from indelible.base.errors import InputError
from indelible.bench.engines import Job
from indelible.bench.engines.local import worker_environment
from indelible.bench.work import Outcome

__all__ = ["RayEngine"]


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
            raise InputError(f"a cell must take some CPU or GPU, but takes {cpus} and {gpus}.")
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
        """How many more jobs the cluster can run at once, with its machines of this moment; one when none runs."""
        resources = self.ray.cluster_resources()
        room = [resources.get(name, 0.0) / share for name, share in self._shares() if share > 0]
        return max(max(1, int(min(room) + 1e-6)) - len(self._jobs), 0)

    def _shares(self) -> list[tuple[str, float]]:
        return [("CPU", self.cpus), ("GPU", self.gpus)]

    def submit(self, job: Job) -> None:
        """Hand a job to the cluster."""
        self._jobs[self._task.remote(asdict(job), self.threads)] = job.digest

    def wait(self, seconds: float) -> Sequence[Outcome]:
        """Wait for outcomes, at most so long; return those that came."""
        if not self._jobs:
            import time

            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        outcomes = []
        for reference in ready:
            digest = self._jobs.pop(reference)
            try:
                outcomes.append(Outcome(**self.ray.get(reference)))
            except self.ray.exceptions.RayError as error:
                said = " ".join(str(error).split())[:300]
                outcomes.append(Outcome(digest=digest, state="lost", error=said))
        return outcomes


def _do(job: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Do a job; runs in a worker of the cluster."""
    import torch

    from indelible.base.progress import silenced
    from indelible.bench.cells import Cell
    from indelible.bench.store import open_store
    from indelible.bench.work import do_cell

    torch.set_num_threads(threads)
    store = open_store(job["store"], locking=job["locking"], patience=job["patience"])
    with silenced():
        cell = Cell.from_json(job["cell"])
        return asdict(do_cell(store, cell, device=job["device"], more=job["more"], dead=job["dead"]))
