"""The table of a benchmark that fills in while it runs: rows are kinds and methods, columns are attacks."""

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from indelible.base.progress import wanted
from indelible.bench.cells import BenchCell
from indelible.bench.runner import Board, State
from indelible.bench.store import Store
from indelible.report.format import ABSENT, SIGNS, duration, percent, verdict_note, verdict_sign

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_SIGNS: Mapping[State, str] = {"waiting": "·", "running": "…", "elsewhere": "~", "failed": "failed", "blocked": "-"}
_REFRESH_SECONDS = 2.0


class LiveBoard:
    """Shows a board: a table on a terminal, a line for each finished cell elsewhere; a context manager."""

    def __init__(self, board: Board, store: Store, title: str) -> None:
        self.board, self.store, self.title = board, store, title
        self.began, self._drawn = time.monotonic(), 0.0
        self._records: dict[str, Mapping[str, Any]] = {}
        self._live: Live | None = None
        board.tell, board.tick = self._tell, self._tick

    def __enter__(self) -> Self:
        if wanted() and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, vertical_overflow="visible")
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._draw()
            self._live.stop()

    def _tell(self, cell: BenchCell, state: State) -> None:
        if state == "done" and cell.digest not in self._records:
            self._records[cell.digest] = self.store.record(cell.digest) or {}
        if self._live is None and wanted() and state in {"done", "failed"}:
            sys.stderr.write(self._line(cell, state) + "\n")
            sys.stderr.flush()

    def _line(self, cell: BenchCell, state: State) -> str:
        count = f"{self.board.count('done')}/{len(self.board.cells)}"
        if state == "failed":
            return f"{count}  {cell.name}: failed: {self.board.errors.get(cell.digest, '')}"
        record = self._records[cell.digest]
        rates = record["measured"]
        cost = f"{duration(record['seconds'])}, {record['images_per_second'] or 0:.0f} images/s"
        verdict = verdict_note(rates.get("owned"), rates.get("p_value"))
        return f"{count}  {cell.name}: BA {percent(rates['ba'])} %, WSR {percent(rates['wsr'])} % ({verdict}); {cost}"

    def _tick(self) -> None:
        if self._live is not None and time.monotonic() - self._drawn >= _REFRESH_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            self._drawn = time.monotonic()
            running = {
                cell.digest: _where(self.store.last_row(cell.digest))
                for cell in self.board.cells
                if self.board.states.get(cell.digest) == "running"
            }
            done = f"{self.board.count('done')} of {len(self.board.cells)} cells, {duration(self._drawn - self.began)}"
            table = board_table(self.board.cells, self.board.states, self._records, running)
            table.title, table.caption = self.title, f"{done}\n{table.caption}"
            self._live.update(table, refresh=True)


def _where(row: Mapping[str, Any] | None) -> str:
    return "…" if row is None else f"… {row['epoch']}"


def board_table(
    cells: Sequence[BenchCell],
    states: Mapping[str, State],
    records: Mapping[str, Mapping[str, Any]],
    running: Mapping[str, str] | None = None,
) -> "Table":
    """Return the WSR of every finished cell with its verdict, and a sign for every other; seeds show mean and count.

    States, records, and what to show for running cells are given by digest.
    """
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    attacks = list(dict.fromkeys(cell.attack for cell in cells if cell.attack is not None))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption_justify="left", title_justify="left", caption=SIGNS)
    networks = len({cell.architecture for cell in cells}) > 1
    for title in (*(["Network"] if networks else []), "Type", "Method"):
        table.add_column(title)
    for title in ("BA", "WSR", *attacks):
        table.add_column(title, justify="right")
    rows = dict.fromkeys((cell.architecture, cell.kind, cell.method) for cell in cells)
    for row in rows:
        own = [cell for cell in cells if (cell.architecture, cell.kind, cell.method) == row]
        shown = [
            _shown([cell for cell in own if cell.attack == attack], measure, states, records, running or {})
            for attack, measure in ((None, "ba"), (None, "wsr"), *((attack, "wsr") for attack in attacks))
        ]
        table.add_row(*map(escape, row[0 if networks else 1 :]), *shown)
    return table


def _shown(
    cells: Sequence[BenchCell], measure: str, states: Mapping[str, State], records: Mapping[str, Mapping[str, Any]],
    running: Mapping[str, str],
) -> str:  # fmt: skip
    found = [records[cell.digest]["measured"] for cell in cells if records.get(cell.digest)]
    known = [one for one in found if one[measure] is not None]
    if known:
        mean = percent(sum(one[measure] for one in known) / len(known))
        sign = f" {verdict_sign([one.get('owned') for one in known])}" if measure == "wsr" else ""
        return mean + sign + (f" ({len(known)}/{len(cells)})" if len(known) < len(cells) else "")
    for state in ("running", "failed", "elsewhere", "blocked", "waiting"):
        for cell in cells:
            if states.get(cell.digest) == state:
                return running.get(cell.digest) or _SIGNS[state]
    return ABSENT
