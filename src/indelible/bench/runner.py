"""Run cells by an engine, each as soon as its inputs exist, until all are done or have failed.

A failed cell is noted and the others go on; attacks on a model that failed are left out. A cell whose worker is gone is
tried again. A cell that another process is doing is waited for, and taken over if that process dies.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, Self

from indelible.bench.cell_records import Outcome, do_cell
from indelible.bench.cells import BenchCell
from indelible.bench.store import Store
from indelible.train.run_folder import Json

State = Literal["waiting", "running", "elsewhere", "done", "failed", "blocked"]
_TICK_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 2.0
_ATTEMPTS = 3


class Engine(Protocol):
    """Does work elsewhere; to be used as a context manager."""

    @property
    def free(self) -> int:
        """How much more work it takes now."""

    def submit(self, work: Callable[[], Outcome]) -> "Future[Outcome]":
        """Start a piece of work; the future has an exception when its worker was lost."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


@dataclass
class Board:
    """State of every cell."""

    cells: Sequence[BenchCell]  # in the order in which they are done
    states: dict[str, State] = field(default_factory=dict)  # by digest
    errors: dict[str, str] = field(default_factory=dict)  # by digest, of failed cells
    records: dict[str, Json] = field(default_factory=dict)  # by digest, of finished cells, as far as they were read
    tell: Callable[[BenchCell, State], None] = lambda _cell, _state: None  # called when a cell's state has changed
    tick: Callable[[], None] = lambda: None  # called about once a second

    def set(self, cell: BenchCell, state: State, error: str = "") -> None:
        """Note a cell's state."""
        if self.states.get(cell.digest) != state:
            self.states[cell.digest] = state
            if error:
                self.errors[cell.digest] = error
            self.tell(cell, state)

    def look(self, store: Store) -> None:
        """Note every cell's state and record as the store has them."""
        done = done_cells(self.cells, store)
        for cell in self.cells:
            if (record := store.record(cell.digest)) is not None:
                self.records[cell.digest] = record
            if cell.digest in done:
                self.set(cell, "done")
            elif store.held(cell.digest):
                self.set(cell, "running")
            elif (failure := store.failure(cell.digest)) is not None:
                self.set(cell, "failed", failure["error"])
            else:
                self.set(cell, "waiting")

    def count(self, *states: State) -> int:
        """Return how many cells are in one of some states."""
        return sum(found in states for found in self.states.values())

    def ready(self, count: int) -> Iterator[BenchCell]:
        """Yield up to ``count`` cells that can be started now, in the plan's order."""
        for cell in self.cells:
            if count < 1:
                return
            if self.states[cell.digest] == "waiting" and self._needs_met(cell):
                count -= 1
                yield cell

    def _needs_met(self, cell: BenchCell) -> bool:
        state = "done" if cell.needs is None else self.states.get(cell.needs)
        if state in {"failed", "blocked"}:
            self.set(cell, "blocked")
        return state == "done"


def done_cells(cells: Sequence[BenchCell], store: Store) -> set[str]:
    """Return the digests of the cells that need not be done: those with a record.

    A model with a record of earlier has no weights here: it is trained again if an attack on it is to be done.
    """
    own = store.finished()
    known = own | store.earlier.keys()
    again = {cell.needs for cell in cells if cell.digest not in known and cell.needs not in own}
    return known - again


def run_cells(board: Board, store: Store, engine: Engine, *, device: str = "auto") -> None:
    """Do all cells of a board that are not done yet."""
    done = done_cells(board.cells, store)
    lost: Counter[str] = Counter()
    looked = 0.0
    futures: dict[Future[Outcome], BenchCell] = {}
    for cell in board.cells:
        board.set(cell, "done" if cell.digest in done else "waiting")
    with engine:
        while board.count("waiting", "running", "elsewhere"):
            for cell in board.ready(engine.free):
                futures[engine.submit(partial(do_cell, store.place, cell, device=device))] = cell
                board.set(cell, "running")
            if not futures:
                time.sleep(_LOOK_AGAIN_SECONDS)
            for future in wait(futures, _TICK_SECONDS, FIRST_COMPLETED).done:
                cell = futures.pop(future)
                lost[cell.digest] += future.exception() is not None
                _note(board, store, cell, future, again=lost[cell.digest] < _ATTEMPTS)
            if time.monotonic() - looked >= _LOOK_AGAIN_SECONDS:
                looked = time.monotonic()
                _look_elsewhere(board, store)
            board.tick()


def _note(board: Board, store: Store, cell: BenchCell, future: "Future[Outcome]", *, again: bool) -> None:
    """Take an outcome in; a cell whose worker was lost is tried ``again``, or given up."""
    if (error := future.exception()) is None:
        states: Mapping[str, State] = {"busy": "elsewhere", "done": "done", "failed": "failed"}
        board.set(cell, states[future.result().state], future.result().error)
    elif again:
        board.set(cell, "waiting")
    else:
        said = f"given up after {_ATTEMPTS} attempts: {' '.join(str(error).split())[:300]}"
        store.keep_failure(cell.digest, {"digest": cell.digest, "name": cell.name, "error": said})
        board.set(cell, "failed", said)


def _look_elsewhere(board: Board, store: Store) -> None:
    """See how the cells are getting on that other processes do."""
    there = [cell for cell in board.cells if board.states[cell.digest] == "elsewhere"]
    finished = store.finished() if there else set()
    for cell in there:
        if cell.digest in finished:
            board.set(cell, "done")
        elif not store.held(cell.digest):
            board.set(cell, "waiting")
