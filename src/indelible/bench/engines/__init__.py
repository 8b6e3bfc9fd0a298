"""Engines: who does the cells - processes of this machine, or a Ray cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from indelible.bench.work import Outcome

__all__ = ["Engine", "Job"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell for a worker, as values that travel to another process.

    Attributes:
        store: Where the store is.
        locking: How cells are locked.
        patience: Seconds after which the owner of a lease is taken for dead.
        cell: The cell as JSON values.
        device: Where to compute.
        more: Fields to add to the record.
        dead: The last sign of an owner of the cell's lease that is known to be dead.
    """

    store: str
    locking: str
    patience: float
    cell: Mapping[str, Any]
    device: str
    more: Mapping[str, Any]
    dead: Sequence[Any] | None = None

    @property
    def digest(self) -> str:
        """The cell's digest."""
        return str(self.cell["digest"])


class Engine(Protocol):
    """Somebody who does cells; to be used as a context manager."""

    @property
    def free(self) -> int:
        """How many more jobs it takes now."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job."""
        ...

    def wait(self, seconds: float) -> Sequence[Outcome]:
        """Wait for outcomes, at most so long; return those that came."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...
