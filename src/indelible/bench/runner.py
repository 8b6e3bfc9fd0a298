"""The runner: cells to an engine, each when what it needs is there, until all are done or cannot be.

A failed cell is noted and the others go on; attacks on a model that failed are left out. A cell whose worker is gone is
tried again. A cell that another process is doing is waited for, and taken over if that process dies.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from indelible.bench.cells import Cell
from indelible.bench.engines import Engine, Job
from indelible.bench.locks import PATIENCE
from indelible.bench.store import Locking, Store
from indelible.bench.work import Outcome

__all__ = ["Board", "State", "run_cells"]

State = Literal["waiting", "running", "elsewhere", "done", "failed", "blocked"]
_TICK_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 2.0
_ATTEMPTS = 3


@dataclass
class Board:
    """Where every cell stands.

    Attributes:
        cells: The cells in order.
        states: By digest.
        errors: By digest, of failed cells.
        tell: Called when a cell's state has changed.
        tick: Called about once a second.
    """

    cells: Sequence[Cell]
    states: dict[str, State] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    tell: Callable[[Cell, State], None] = lambda _cell, _state: None
    tick: Callable[[], None] = lambda: None

    def set(self, cell: Cell, state: State, error: str = "") -> None:
        """Note a cell's state."""
        if self.states.get(cell.digest) != state:
            self.states[cell.digest] = state
            if error:
                self.errors[cell.digest] = error
            self.tell(cell, state)

    def count(self, state: State) -> int:
        """Return how many cells are in a state."""
        return sum(found == state for found in self.states.values())


def run_cells(
    board: Board,
    store: Store,
    engine: Engine,
    *,
    device: str = "auto",
    locking: Locking = "auto",
    patience: float = PATIENCE,
    more: Callable[[Cell], Mapping[str, Any]] = lambda _cell: {},
) -> None:
    """Do all cells of a board that are not done yet.

    Args:
        board: The cells, and who is told about them.
        store: Where they are kept.
        engine: Who does them.
        device: Where to compute.
        locking: How workers lock cells.
        patience: Seconds after which the owner of a lease is taken for dead.
        more: Fields to add to a cell's record.
    """
    run = _Run(board, store, {cell.digest: cell for cell in board.cells})
    run.look()
    with engine:
        while run.unfinished():
            for cell in run.ready(engine.free):
                engine.submit(
                    Job(
                        store=store.place, locking=locking, patience=patience, cell=cell.to_json(), device=device,
                        more=more(cell), dead=store.dead(cell.digest),
                    )
                )  # fmt: skip
                board.set(cell, "running")
            for outcome in engine.wait(_TICK_SECONDS if run.under_way() else _LOOK_AGAIN_SECONDS):
                run.note(outcome)
            run.look_elsewhere()
            board.tick()


@dataclass
class _Run:
    """The bookkeeping of one call of :func:`run_cells`."""

    board: Board
    store: Store
    cells: dict[str, Cell]
    attempts: dict[str, int] = field(default_factory=dict)
    looked: float = 0.0

    def look(self) -> None:
        """See what is in the store."""
        finished = self.store.finished()
        for cell in self.board.cells:
            self.board.set(cell, "done" if cell.digest in finished else "waiting")

    def unfinished(self) -> bool:
        """Tell whether anything can still be done."""
        return any(state in {"waiting", "running", "elsewhere"} for state in self.board.states.values())

    def under_way(self) -> bool:
        """Tell whether a worker is doing something."""
        return self.board.count("running") > 0

    def ready(self, count: int) -> Iterator[Cell]:
        """Yield up to ``count`` cells that can be started now, in the plan's order."""
        for cell in self.board.cells:
            if count < 1:
                return
            if self.board.states[cell.digest] == "waiting" and self._needs_met(cell):
                count -= 1
                yield cell

    def _needs_met(self, cell: Cell) -> bool:
        if cell.needs is None:
            return True
        state = self.board.states.get(cell.needs)
        if state in {"failed", "blocked"}:
            self.board.set(cell, "blocked")
        return state == "done"

    def note(self, outcome: Outcome) -> None:
        """Take an outcome in."""
        cell = self.cells[outcome.digest]
        if outcome.state == "done":
            self.board.set(cell, "done")
        elif outcome.state == "busy":
            self.board.set(cell, "elsewhere")
        elif outcome.state == "failed":
            self.board.set(cell, "failed", outcome.error)
        else:
            self.attempts[cell.digest] = self.attempts.get(cell.digest, 0) + 1
            if self.attempts[cell.digest] < _ATTEMPTS:
                self.board.set(cell, "waiting")
            else:
                said = f"given up after {_ATTEMPTS} attempts: {outcome.error}"
                self.store.keep_failure(cell.digest, {"digest": cell.digest, "name": cell.name, "error": said})
                self.board.set(cell, "failed", said)

    def look_elsewhere(self) -> None:
        """See how the cells are getting on that other processes do."""
        if time.monotonic() - self.looked < _LOOK_AGAIN_SECONDS:
            return
        self.looked = time.monotonic()
        for cell in self.board.cells:
            if self.board.states[cell.digest] == "elsewhere":
                if self.store.record(cell.digest) is not None:
                    self.board.set(cell, "done")
                elif not self.store.held(cell.digest):
                    self.board.set(cell, "waiting")
