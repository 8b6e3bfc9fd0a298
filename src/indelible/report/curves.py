"""What the charts show, as plain numbers: one chart per quantity, methods as series.

An attack that can choose its strength has a panel more: BA and WSR at each strength, one chart per model.

An attack's history knows no WSR - the attacker cannot measure it - so its curves start at the model before the attack
and end at the verdict after it, with whatever was measured between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indelible.report.collect import Entry, Stage
from indelible.report.format import join_words, verdict_note

__all__ = ["HOLLOW", "Chart", "Panel", "Series", "panels"]

HOLLOW = "Hollow markers of WSR: the verdict does not show ownership there."

Point = tuple[float, float]
_QUANTITIES = {"loss": "Training loss", "ba": "Benign accuracy (BA)", "wsr": "Watermark success rate (WSR)"}
_RATES = ("ba", "wsr")
_STRENGTH_RATES = {"ba": "BA", "wsr": "WSR", "accuracy": "Accuracy on the attacker's held-out images"}


@dataclass(frozen=True)
class Series:
    """One curve: its label, the number of its look, and (epoch or strength, value) points; rates in percent.

    ``hollow`` are the numbers of the points at which a verdict did not show ownership.
    """

    label: str
    look: int
    points: tuple[Point, ...]
    hollow: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chart:
    """One quantity over epochs, or some rates over the strength of an attack.

    Attributes:
        title: The quantity in words.
        unit: ``"%"`` or ``"nats"``.
        series: The curves.
        when: What was going on: "embedding", "FT".
        over: What the horizontal axis shows: "Epoch", or what an attack varies.
        ticks: Names of the positions 0, 1, ... on it, when it shows names.
        note: What a reader must know beside the title: a WSR's verdicts.
    """

    title: str
    unit: str
    series: tuple[Series, ...]
    when: str
    over: str = "Epoch"
    ticks: tuple[str, ...] = ()
    note: str = ""

    @property
    def alt(self) -> str:
        """The chart in words, for those who do not see it."""
        if self.ticks:
            labels = join_words([series.label for series in self.series])
            return f"{self.title}: {self.when} of {labels} at {join_words(self.ticks)}. The table has the numbers."
        digits = 1 if self.unit == "%" else 3
        ends = [f"{series.label} at {series.points[-1][1]:.{digits}f} {self.unit}" for series in self.series]
        axis = "epochs" if self.over == "Epoch" else self.over.lower()
        return f"{self.title} over the {axis} of {self.when}. At the end: {join_words(ends)}."


@dataclass(frozen=True)
class Panel:
    """The charts of one stage, which looks they use - (label, number) - and what a reader must know beside them."""

    title: str
    charts: tuple[Chart, ...]
    legend: tuple[tuple[str, int], ...]
    note: str = ""


def panels(entries: Sequence[Entry]) -> list[Panel]:
    """Return a panel for training and one for each attack; those without any point are left out."""
    methods = list(dict.fromkeys(entry.method for entry in entries))
    looks = {entry.label: methods.index(entry.method) for entry in entries}
    made = [_panel("Training", "training", [(entry, entry.before, None) for entry in entries if entry.before], looks)]
    for title in dict.fromkeys(stage.title for entry in entries for stage in entry.after):
        attacked = [(entry, stage, entry.before) for entry in entries for stage in entry.after if stage.title == title]
        made.append(_panel(f"Attack: {title}", title, attacked, looks))
        made.append(_strengths(title, [(entry, stage) for entry, stage, _ in attacked]))
    return [panel for panel in made if panel.charts]


def _panel(
    title: str, when: str, stages: Sequence[tuple[Entry, Stage, Stage | None]], looks: Mapping[str, int]
) -> Panel:
    charts = []
    for name, words in _QUANTITIES.items():
        series = [
            Series(entry.label, looks[entry.label], points)
            for entry, stage, before in stages
            if (entry.marked or name != "wsr") and (points := _points(stage, before, name))
        ]
        if series:
            note = (
                _verdicts([(entry, stage) for entry, stage, _ in stages if entry.marked], when) if name == "wsr" else ""
            )
            charts.append(Chart(words, "%" if name in _RATES else "nats", tuple(series), when, note=note))
    shown = {entry.method: looks[entry.label] for entry, _, _ in stages}
    return Panel(title, tuple(charts), tuple(shown.items()))


def _verdicts(stages: Sequence[tuple[Entry, Stage]], when: str) -> str:
    """Say which verdict stands behind the WSR at the end of a training or an attack."""
    said = [f"{entry.label} {verdict_note(stage.owned, stage.p_value)}" for entry, stage in stages]
    return f"After {when}: {'; '.join(said)}." if said else ""


def _strengths(title: str, stages: Sequence[tuple[Entry, Stage]]) -> Panel:
    """Return a panel of BA and WSR over the strength of an attack, one chart for each model that has a curve."""
    charts = []
    for entry, stage in stages:
        curve = stage.run.curve()
        if curve is None:
            continue
        series = tuple(
            Series(label, look, points, _hollow(curve["rows"]) if name == "wsr" else ())
            for look, (name, label) in enumerate(_STRENGTH_RATES.items())
            if (
                points := tuple((row["value"], 100.0 * row[name]) for row in curve["rows"] if row.get(name) is not None)
            )
        )
        if series:
            name, chosen = str(curve["name"]), curve.get("chosen")
            taken = "" if chosen is None else f", {name} {chosen:g} chosen"
            note = _verdicts([(entry, stage)], title)
            charts.append(Chart(f"{entry.label}{taken}", "%", series, title, name.capitalize(), note=note))
    legend = {series.label: series.look for chart in charts for series in chart.series}
    hollow = any(series.hollow for chart in charts for series in chart.series)
    return Panel(
        f"Attack: {title}, at each strength", tuple(charts), tuple(legend.items()), HOLLOW if hollow else ""
    )  # fmt: skip


def _hollow(rows: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    measured = [row for row in rows if row.get("wsr") is not None]
    return tuple(number for number, row in enumerate(measured) if row.get("owned") is False)


def _points(stage: Stage, before: Stage | None, name: str) -> tuple[Point, ...]:
    rows = list(stage.run.history())
    scale = 100.0 if name in _RATES else 1.0
    epochs = _epochs(rows)
    measured = {
        epoch: scale * row[name]
        for epoch, row in zip(epochs, rows, strict=True)
        if isinstance(row.get(name), int | float)
    }
    if before is not None and name in _RATES:
        start, end = getattr(before, name), getattr(stage, name)
        if start is not None:
            measured = {0.0: scale * start, **measured}
        if end is not None and epochs:
            measured[epochs[-1]] = scale * end
    return tuple(measured.items())


def _epochs(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Number the epochs through when a run has several phases, each of which counts from one."""
    numbered: list[float] = []
    passed = last = 0.0
    for row in rows:
        epoch = float(row.get("epoch", last + 1))
        if epoch <= last:
            passed += last
        last = epoch
        numbered.append(passed + epoch)
    return numbered
