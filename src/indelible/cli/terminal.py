"""What a terminal shows: results in a few lines, and the table of a benchmark that fills in while it runs."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from indelible.base.progress import wanted
from indelible.bench.cells import BenchCell
from indelible.bench.runner import Board, State
from indelible.bench.store import Store
from indelible.embedding.embedding_method import advice
from indelible.evidence.check import Checked
from indelible.report.format import ABSENT, SIGNS, duration, equation, percent, verdict_note, verdict_sign
from indelible.train.run_folder import Run
from indelible.verification import Verdict

# The first that one of the cells is in is shown.
_SIGNS: Mapping[State, str] = {"running": "…", "failed": "failed", "elsewhere": "~", "blocked": "-", "waiting": "·"}


def describe_run(run: Run) -> str:
    """Describe a finished run: what it gave, what it cost, where it is."""
    record, metrics, verdict = run.record, run.record.metrics, run.verdict
    titles = {"ba_before": "BA before", "ba": "BA", "wsr": "WSR", "wsr_embedded": "WSR on embedded samples"}
    rates = [f"{title} {percent(metrics[name])} %" for name, title in titles.items() if metrics.get(name) is not None]
    if metrics.get("wsr") is not None:
        # A WSR by itself shows nothing: its verdict stands beside it.
        known = {} if verdict is None else verdict
        rates.append(verdict_note(known.get("owned"), known.get("p_value")))
    cost = f"{record.images} image passes in {record.seconds:.0f} s"
    lines = [f"{record.verb} {record.method}: {', '.join([*rates, cost])}", f"kept in {run.folder}"]
    if verdict is not None:
        lines.insert(1, describe_verdict(verdict))
        if record.verb == "embed" and not verdict["owned"]:
            lines.insert(2, advice(Verdict.from_json(verdict)))
    return "\n".join(lines)


def describe_verdict(verdict: Mapping[str, Any]) -> str:
    """Describe a verdict: the figures, then the sentence."""
    ba = "" if verdict.get("ba") is None else f"BA {percent(verdict['ba'])} %, "
    word = "OWNED" if verdict["owned"] else "NOT SHOWN"
    return (
        f"{word} at alpha {verdict['alpha']:g}: {ba}WSR {percent(verdict['wsr'])} %, "
        f"{equation(verdict['p_value'])}, {verdict['queries']} queries\n{verdict['sentence']}"
    )


def describe_check(checked: Checked) -> str:
    """Describe the check of a bundle: two sentences, what was established, every step, what it cannot show."""
    steps = [f"  {'holds ' if step.holds else 'FAILS '} {step.name}: {step.says}" for step in checked.steps]
    if not checked.holds or checked.claim is None:
        return "\n".join([*checked.summary, *steps])
    book = checked.carriers is not None
    drawn = f"their {'classes' if book else 'labels'} were drawn, not chosen"
    origin = drawn if checked.drawn else "not shown to be derived from a secret (--key)"
    if checked.carriers == "open":
        origin = f"{origin}; the carriers are not shown to be the auditor's (--data)"
    lines = [
        *checked.summary, checked.claim["verdict"]["sentence"], f"Date of the commitment: {_date(checked)}.",
        f"{'Marks' if book else 'Samples'}: {'derived from the key' if checked.derived else origin}.", *steps,
        "Files that are evidence:", *_files(checked, evidence=True), "Files that are not:",
        *_files(checked, evidence=False), checked.meaning,
    ]  # fmt: skip
    if checked.caveats:
        lines += ["What the bundle cannot show:", *(f"  - {caveat}" for caveat in checked.caveats)]
    return "\n".join(lines)


def _date(checked: Checked) -> str:
    if checked.stamp is None:
        return "not established, since there is no timestamp"
    if checked.dated:
        return f"at the latest {checked.stamp.time}, by {checked.stamp.authority}"
    return f"not established; the timestamp says {checked.stamp.time}, but you gave no roots to check it with (--roots)"


def _files(checked: Checked, *, evidence: bool) -> list[str]:
    return [f"  {one.name}: {one.says}" for one in checked.files if one.evidence == evidence]


class LiveBoard:
    """Shows a board: a table on a terminal, a line for each finished cell elsewhere; a context manager."""

    def __init__(self, board: Board, store: Store, title: str) -> None:
        self.board, self.store, self.title, self.began = board, store, title, time.monotonic()
        self._live: Live | None = None
        board.tell, board.tick = self._tell, self._draw

    def __enter__(self) -> Self:
        if wanted() and sys.stderr.isatty():
            self._live = Live(console=Console(stderr=True), auto_refresh=False, vertical_overflow="visible")
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._draw()
            self._live.stop()

    def _tell(self, cell: BenchCell, state: State) -> None:
        if state == "done":
            self.board.records.setdefault(cell.digest, self.store.record(cell.digest) or {})
        if self._live is None and wanted() and state in {"done", "failed"}:
            sys.stderr.write(self._line(cell, state) + "\n")
            sys.stderr.flush()

    def _line(self, cell: BenchCell, state: State) -> str:
        count = f"{self.board.count('done')}/{len(self.board.cells)}"
        if state == "failed":
            return f"{count}  {cell.name}: failed: {self.board.errors.get(cell.digest, '')}"
        record = self.board.records[cell.digest]
        rates = record["measured"]
        cost = f"{duration(record['seconds'])}, {record['images_per_second'] or 0:.0f} images/s"
        verdict = verdict_note(rates.get("owned"), rates.get("p_value"))
        return f"{count}  {cell.name}: BA {percent(rates['ba'])} %, WSR {percent(rates['wsr'])} % ({verdict}); {cost}"

    def _draw(self) -> None:
        if self._live is None:
            return
        took = duration(time.monotonic() - self.began)
        table = board_table(self.board, self.store)
        count = f"{self.board.count('done')} of {len(self.board.cells)} cells"
        table.title, table.caption = self.title, f"{count}, {took}\n{table.caption}"
        self._live.update(table, refresh=True)


def board_table(board: Board, store: Store) -> Table:
    """Return the WSR of every finished cell with its verdict, and a sign for every other; seeds show mean and count."""
    cells = board.cells
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
            _shown([cell for cell in own if cell.attack == attack], measure, board, store)
            for attack, measure in ((None, "ba"), (None, "wsr"), *((attack, "wsr") for attack in attacks))
        ]
        table.add_row(*map(escape, row[0 if networks else 1 :]), *shown)
    return table


def _shown(cells: Sequence[BenchCell], measure: str, board: Board, store: Store) -> str:
    found = [board.records[cell.digest]["measured"] for cell in cells if board.records.get(cell.digest)]
    known = [one for one in found if one[measure] is not None]
    if known:
        mean = percent(sum(one[measure] for one in known) / len(known))
        sign = f" {verdict_sign([one.get('owned') for one in known])}" if measure == "wsr" else ""
        return mean + sign + (f" ({len(known)}/{len(cells)})" if len(known) < len(cells) else "")
    for state, sign in _SIGNS.items():
        for cell in cells:
            if board.states.get(cell.digest) == state:
                row = store.last_row(cell.digest) if state == "running" else None
                return sign if row is None else f"{sign} {row['epoch']}"
    return ABSENT
