"""The row of the paper's tables: BA and WSR before, WSR after each attack, and the mean drop.

AvgDrop is the mean over the paper's six attacks, or over those of them that were run: WSR before minus WSR after.
Attacks that the paper has not do not count; :func:`attacks_table` has a row for every attack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.bench.attack_suite import AttackSuite
from indelible.report.collect import Entry, Stage, collect
from indelible.report.format import ABSENT, SIGNS, percent, verdict_sign
from indelible.report.names import short_title
from indelible.train.run import Run

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = ["PAPER_ATTACKS", "Suite", "attacks_table", "average_drop", "suite", "suite_table"]

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
        verdicts: (owned, p-value) after each attack; under the empty name, before any.
    """

    label: str
    kind: str
    ba: float | None
    wsr: float | None
    after: Mapping[str, tuple[float | None, float | None]]
    verdicts: Mapping[str, tuple[bool | None, float | None]] = field(default_factory=dict)

    @property
    def avg_drop(self) -> float | None:
        """The mean drop of WSR over the paper's attacks; None when none was run."""
        return average_drop(self.wsr, [rates[1] for name, rates in self.after.items() if name in PAPER_ATTACKS])

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return {
            "label": self.label, "kind": self.kind, "ba": self.ba, "wsr": self.wsr, **self._verdict(""),
            "avg_drop": self.avg_drop,
            "after": {name: {"ba": ba, "wsr": wsr, **self._verdict(name)} for name, (ba, wsr) in self.after.items()},
        }  # fmt: skip

    def _verdict(self, name: str) -> dict[str, Any]:
        owned, value = self.verdicts.get(name, (None, None))
        return {"owned": owned, "p_value": value}

    def sign(self, name: str = "") -> str:
        """Return the verdict after an attack, by default before any, as a sign; nothing where no WSR is known."""
        known = self.after[name][1] if name else self.wsr
        return "" if known is None else verdict_sign([self.verdicts.get(name, (None, None))[0]])


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
        verdicts={name: (stage.owned, stage.p_value) for name, stage in {"": before, **by_attack}.items() if stage},
    )


def suite_table(rows: Sequence[Suite]) -> "RichTable":
    """Return the rows as a table for a terminal of 80 columns: WSR after the paper's attacks, BA above it."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    ran = list(dict.fromkeys(name for row in rows for name in row.after))
    names = [name for name in PAPER_ATTACKS if name in ran]
    caption = SIGNS
    if len(names) < len(PAPER_ATTACKS):
        caption = f"AvgDrop over {len(names)} of the paper's 6 attacks. {SIGNS}"
    drawn = RichTable(
        box=SIMPLE_HEAD, pad_edge=False, padding=0, caption=caption, caption_justify="left"
    )  # fmt: skip
    drawn.add_column("Type", no_wrap=True)
    drawn.add_column("Method", overflow="fold")  # long names are broken; a number never is
    drawn.add_column("%", no_wrap=True)
    for title in ("Before", *(short_title(name) for name in names), "AvgDrop"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        for place, measure in enumerate(("BA", "WSR")):
            cells = {name: percent(rates[place]) + place * row.sign(name) for name, rates in row.after.items()}
            drop = percent(row.avg_drop) if place else ""
            drawn.add_row(
                escape(row.kind) if place == 0 else "", escape(row.label) if place == 0 else "", measure,
                percent(row.wsr if place else row.ba) + place * row.sign(),
                *(cells.get(name, ABSENT) for name in names), drop,
            )  # fmt: skip
    return drawn


def attacks_table(found: AttackSuite) -> "RichTable":
    """Return what every attack cost, and what its verdict says where there is one, for a terminal of 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    verdicts = {row.attack: Run.load(row.folder).verdict() for row in found.rows if row.folder is not None}
    judged = any(verdict is not None for verdict in verdicts.values())
    drawn = RichTable(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption_justify="left",
        caption=(
            f"Held-out BA: on {found.held_out} images of the attacker that no attack was given; "
            f"{percent(found.before)} before. * costs more than {percent(found.ba_drop)} points."
        ),
    )  # fmt: skip
    drawn.add_column("Attack", no_wrap=True)
    titles = ("Held-out BA", "Passes", "Seconds", *(("BA", "WSR", "Owned") if judged else ()))
    for title in titles:
        drawn.add_column(title, justify="right", no_wrap=True)
    for row in found.rows:
        verdict = verdicts.get(row.attack) or {}
        rates = [percent(verdict.get(name)) for name in ("ba", "wsr")]
        owned = ABSENT if not verdict else "yes" if verdict["owned"] else "no"
        cost = [f"{percent(row.accuracy)}{' ' if row.within else '*'}", f"{row.images:,}", f"{row.seconds:.0f}"]
        drawn.add_row(
            escape(row.attack), *([ABSENT] * 3 if row.refused else cost), *((*rates, owned) if judged else ())
        )
    return drawn
