"""Progress for people: a bar on a terminal, one line per finished part in a log, nothing when asked for silence.

A thin layer over ``rich``: it adds the silent mode and the plain lines for logs, and keeps rich out of hot loops.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_state = {"silent": False}
_REFRESH_SECONDS = 0.25


@contextmanager
def silenced(silent: bool = True) -> Iterator[None]:
    """Switch progress off inside the block (``--json``, tests, libraries calling libraries)."""
    before = _state["silent"]
    _state["silent"] = silent
    try:
        yield
    finally:
        _state["silent"] = before


def wanted() -> bool:
    """Tell whether anybody wants to see progress."""
    return not _state["silent"]


class Progress:
    """A bar for ``total`` units of work, on standard error; to be used as a context manager.

    ``done`` units were done in an earlier session of a resumed run; with ``bytes_`` units are shown as sizes and MB/s.
    On a terminal a bar is drawn. Elsewhere only :meth:`line` writes, so that logs stay readable.
    """

    def __init__(self, title: str, total: int, *, done: int = 0, bytes_: bool = False) -> None:
        self.title, self.total, self.done, self._bytes = title, total, done, bytes_
        self._shown, self._note = 0.0, ""
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if wanted() and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
            from rich.progress import Progress as RichProgress

            amount = [DownloadColumn(), TransferSpeedColumn()] if self._bytes else []
            self._bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.percentage:>3.0f} %"), *amount,
                TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
                console=Console(stderr=True), refresh_per_second=4,
            )  # fmt: skip
            self._task = self._bar.add_task(self.title, total=self.total, completed=self.done, note="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.done, note=self._note)
            self._bar.stop()

    @property
    def due(self) -> bool:
        """Whether a redraw is due; a caller may skip computing a costly note when it is not."""
        return self._bar is not None and time.monotonic() - self._shown >= _REFRESH_SECONDS

    def advance(self, units: int = 1, note: str | None = None) -> None:
        """Count ``units`` more; ``note`` is shown behind the bar until the next one."""
        self.done += units
        if note is not None:
            self._note = note
        if self.due and self._bar is not None and self._task is not None:
            self._shown = time.monotonic()
            self._bar.update(self._task, completed=self.done, note=self._note)

    def line(self, text: str) -> None:
        """Write one finished line above the bar (an epoch's figures, a file's name)."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        elif wanted():
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
