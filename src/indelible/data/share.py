"""Which rows of a batch belong to one of several processes: every ``world``-th, from ``rank`` on.

Rows are dealt out like cards. So the first rows of the whole batch are the first rows of every process' part, and a
method that takes "the first 64 rows" takes the same rows whatever the number of processes.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Share:
    """One process' part of a batch: of process ``rank`` of ``world`` processes."""

    rank: int = 0
    world: int = 1

    def of(self, rows: Tensor) -> Tensor:
        """Return this process' part of ``rows`` (first axis)."""
        return rows[self.rank :: self.world] if self.world > 1 else rows

    def count(self, total: int) -> int:
        """Return how many of ``total`` rows are this process'."""
        return len(range(self.rank, total, self.world))

    def weight(self, total: int) -> float:
        """Return by what the mean over this part is multiplied so that the mean over processes is that over all rows.

        One where all parts are equal. Example: of 5 rows two processes have 3 and 2; 3 * 2 / 5 and 2 * 2 / 5.
        """
        return self.count(total) * self.world / total


WHOLE = Share()
