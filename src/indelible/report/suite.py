"""The row of the paper's tables: BA and WSR before, WSR after each attack, and the mean drop.

AvgDrop is the mean over the paper's six attacks, or over those of them that were run: WSR before minus WSR after.
Attacks that the paper has not are shown in a table of their own and do not count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.report.collect import Entry, Stage, collect
from indelible.report.format import ABSENT, percent
from indelible.report.names import short_title

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["PAPER_ATTACKS", "Suite", "average_drop", "suite", "suite_table"]

PAPER_ATTACKS = ("ft", "fp", "anp", "nad", "mcr", "nnl")


@dataclass(frozen=True)
class Suite:
    """One model and all attacks on it; rates are fractions.

    Attributes:
        label: The model.
        kind: The kind of its mark, if known.
        ba: Accuracy before.
        wsr: Watermark success rate before.
        after: (BA, WSR) after each attack, the paper's first.
    """

    label: str
    kind: str
    ba: float | None
    wsr: float | None
    after: Mapping[str, tuple[float | None, float | None]]

    @property
    def avg_drop(self) -> float | None:
        """The mean drop of WSR over the paper's attacks; None when none was run."""
        return average_drop(self.wsr, [rates[1] for name, rates in self.after.items() if name in PAPER_ATTACKS])

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return {
            "label": self.label, "kind": self.kind, "ba": self.ba, "wsr": self.wsr, "avg_drop": self.avg_drop,
            "after": {name: {"ba": ba, "wsr": wsr} for name, (ba, wsr) in self.after.items()},
        }  # fmt: skip


def average_drop(before: float | None, after: Sequence[float | None]) -> float | None:
    """Return the mean of ``before`` minus each of ``after``; what was not measured does not count."""
    measured = [rate for rate in after if rate is not None]
    if before is None or not measured:
        return None
    return before - sum(measured) / len(measured)


def suite(runs: Sequence[str | Path]) -> list[Suite]:
    """Read runs and return one row for each model; of several runs of one attack the last is taken.

    Args:
        runs: Folders of runs, or folders that contain runs.
    """
    return [_row(entry) for entry in collect(runs) if entry.after]


def _row(entry: Entry) -> Suite:
    by_attack: dict[str, Stage] = {stage.run.record.method: stage for stage in entry.after}
    names = [name for name in PAPER_ATTACKS if name in by_attack]
    names += [name for name in by_attack if name not in PAPER_ATTACKS]
    before = entry.before
    return Suite(
        label=entry.label,
        kind="" if before is None else str(before.run.record.inputs.get("kind", "")),
        ba=None if before is None else before.ba,
        wsr=None if before is None else before.wsr,
        after={name: (by_attack[name].ba, by_attack[name].wsr) for name in names},
    )


def suite_table(rows: Sequence[Suite], *, paper: bool = True) -> "RichTable":
    """Return the rows as a table for a terminal of 80 columns: WSR as in the paper, BA above it.

    Args:
        rows: Models and the attacks on them.
        paper: The paper's row, with AvgDrop; otherwise the attacks that the paper has not.
    """
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    ran = list(dict.fromkeys(name for row in rows for name in row.after))
    names = [name for name in (PAPER_ATTACKS if paper else ran) if name in ran and (name in PAPER_ATTACKS) == paper]
    caption = (
        f"AvgDrop over {len(names)} of the paper's 6 attacks." if paper and len(names) < len(PAPER_ATTACKS) else None
    )
    drawn = RichTable(
        box=SIMPLE_HEAD, pad_edge=False, padding=0, caption=caption, caption_justify="left"
    )  # fmt: skip
    drawn.add_column("Type", no_wrap=True)
    drawn.add_column("Method", overflow="fold")  # long names are broken; a number never is
    drawn.add_column("%", no_wrap=True)
    for title in ("Before", *(short_title(name) for name in names), *(["AvgDrop"] if paper else [])):
        drawn.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for place, measure in enumerate(("BA", "WSR")):
            cells = {name: percent(rates[place]) for name, rates in row.after.items()}
            drop = [percent(row.avg_drop) if place else ""] if paper else []
            drawn.add_row(
                escape(row.kind) if place == 0 else "", escape(row.label) if place == 0 else "", measure,
                percent(row.wsr if place else row.ba), *(cells.get(name, ABSENT) for name in names), *drop,
            )  # fmt: skip
    return drawn
