"""Charts of runs and of tables, as panels of a page.

Of runs: one chart per quantity over the epochs of a training or an attack, methods as series. An attack that can choose
its strength has a panel more: BA and WSR at each strength, one chart per model. An attack's history knows no WSR - the
attacker cannot measure it - so its curves start at the model before the attack and end at the verdict after it, with
whatever was measured between.

Of tables: what remains of the watermark under each attack, or along what an ablation varies. Measured and reported
numbers have charts of their own, side by side.

| ``across`` | horizontal axis | curves | charts |
|---|---|---|---|
| ``attacks`` | before, and each attack | rows | one for each group |
| ``rows`` | last row heading | groups, or the attacks where there is one group | one for each attack, or one |
| ``groups`` | groups | last row heading | one for each attack |

A :class:`Chart` is plain numbers; :func:`draw` draws it with matplotlib, as inline SVG in the page's colours and font.
A template draws a :func:`sparkline`, since a page may hold hundreds of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from indelible.bench.measurement import COMPONENTS, Measurement
from indelible.report.drawing import Drawing, Ink, as_inline, percent_axis
from indelible.report.drawing import series as draw_series
from indelible.report.format import join_words, verdict_note
from indelible.report.model_stages import ModelStages, run_of
from indelible.report.page_look import drawn_by
from indelible.report.table_grid import Entry, Grid, Row
from indelible.report.table_layouts import title_of

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HOLLOW = "Hollow markers of WSR: the verdict does not show ownership there."
Point = tuple[float, float]
_WIDTH, _HEIGHT = 360 * 25.4 / 72, 250 * 25.4 / 72  # 360 points, so that one is one pixel of a 360-pixel phone
_EDGE = 6


@dataclass(frozen=True)
class Series:
    """One curve: its label, the number of its look, and (epoch or strength, value) points; rates in per cent.

    ``hollow`` are the numbers of the points at which a verdict did not show ownership.
    """

    label: str
    look: int
    points: tuple[Point, ...]
    hollow: tuple[int, ...] = ()


@dataclass(frozen=True)
class Chart:
    """One quantity over epochs, or some rates over the strength of an attack."""

    title: str  # the quantity in words
    unit: str  # `"%"` or `"nats"`
    series: tuple[Series, ...]  # the curves
    when: str  # what was going on: "embedding", "FT"
    over: str = "Epoch"  # what the horizontal axis shows: "Epoch", or what an attack varies
    ticks: tuple[str, ...] = ()  # names of the positions 0, 1, ... on it, when it shows names.
    note: str = ""  # what a reader must know beside the title: a WSR's verdicts

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

    @classmethod
    def of(cls, title: str, charts: Sequence[Chart], hollow: str = HOLLOW) -> "Panel":
        """Return a panel whose legend names every series; ``hollow`` is its note where markers are."""
        series = [one for chart in charts for one in chart.series]
        legend = {one.label: one.look for one in series}
        return cls(title, tuple(charts), tuple(legend.items()), hollow if any(one.hollow for one in series) else "")


def drawn(panels: Sequence[Panel], prefix: str = "c") -> list[Mapping[str, Any]]:
    """Draw the charts of some panels for the template ``panel.html.j2``; ids on a page start with ``prefix``."""
    return [
        {
            "panel": panel,
            "charts": [(chart, draw(chart, f"{prefix}{row}{column}")) for column, chart in enumerate(panel.charts)],
        }
        for row, panel in enumerate(panels)
    ]


def draw(chart: Chart, name: str) -> "Markup":
    """Return ``chart`` as an ``<svg>`` element; ``name`` is the prefix of its ids."""

    def plot(figure: "Figure", ink: Ink) -> None:
        # Fixed margins: the axes of charts side by side line up.
        _plot(figure.add_axes((0.13, 0.17, 0.83, 0.78)), chart, ink)

    return as_inline(Drawing(_WIDTH, _HEIGHT, plot, chart.alt, small=False), name)


def _plot(axes: "Axes", chart: Chart, ink: Ink) -> None:
    from matplotlib.ticker import MaxNLocator

    places = [point[0] for series in chart.series for point in series.points]
    first, last = min(places), max(places)
    for series in chart.series:
        xs, ys = zip(*series.points, strict=True)
        draw_series(axes, xs, ys, series.look, ink, hollow=series.hollow)
    whole = chart.over == "Epoch" or bool(chart.ticks)
    # A single measurement gets room on both sides, or its axis would show fractions of an epoch.
    margin = 0.03 * (max(last - first, 1) if whole else (last - first) or 1) if last > first else 0.5
    axes.set_xlim(first - margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=_EDGE, integer=whole))
    axes.set_xlabel(chart.over)
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), chart.ticks)
    if chart.unit == "%":
        percent_axis(axes)
        return
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def sparkline(curve: Any) -> "Markup | None":
    """Return the curve (``name``, ``chosen``, ``rows``) as ``<svg>``; None if there is nothing to draw."""
    rows = curve.get("rows") if isinstance(curve, Mapping) else None
    known = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, Sequence) else []
    return drawn_by("sparkline.svg.j2", curve=curve, rows=known) or None


Attacked = tuple[ModelStages, Measurement, Measurement | None]
"""A model, one of its stages, and the stage before it."""
_QUANTITIES = {"loss": "Training loss", "ba": "Benign accuracy (BA)", "wsr": "Watermark success rate (WSR)"}
_RATES = ("ba", "wsr")
_STRENGTH_RATES = {"ba": "BA", "wsr": "WSR", "accuracy": "Accuracy on the attacker's held-out images"}
Read = Callable[[Entry], float | None]
Curve = dict[str, Entry]
"""Tick of the horizontal axis -> the cell there."""
# A method looks the same in every figure; APP has the solid line.
_HOLLOW = f"{HOLLOW} Of several seeds: for at least one."
_LOOKS = {"Vanilla": 0, "EW": 1, "APP": 2, "CW": 3, "c-BN only": 4, "APP only": 5}


def panels(models: Sequence[ModelStages]) -> list[Panel]:
    """Return a panel for training and one for each attack; those without any point are left out."""
    methods = list(dict.fromkeys(model.method for model in models))
    looks = {model.label: methods.index(model.method) for model in models}
    made = [_panel("Training", "training", [(model, model.before, None) for model in models if model.before], looks)]
    for title in dict.fromkeys(str(stage.column) for model in models for stage in model.after):
        attacked = [(model, stage, model.before) for model in models for stage in model.after if stage.column == title]
        made.append(_panel(f"Attack: {title}", title, attacked, looks))
        made.append(_strengths(title, [(model, stage) for model, stage, _ in attacked]))
    return [panel for panel in made if panel.charts]


def _panel(title: str, when: str, stages: Sequence[Attacked], looks: Mapping[str, int]) -> Panel:
    charts = []
    for name, words in _QUANTITIES.items():
        series = [
            Series(model.label, looks[model.label], points)
            for model, stage, before in stages
            if (model.marked or name != "wsr") and (points := _points(stage, before, name))
        ]
        if series:
            judged = [(model, stage) for model, stage, _ in stages if model.marked and name == "wsr"]
            note = _verdicts(judged, when)
            charts.append(Chart(words, "%" if name in _RATES else "nats", tuple(series), when, note=note))
    shown = {model.method: looks[model.label] for model, _, _ in stages}
    return Panel(title, tuple(charts), tuple(shown.items()))


def _verdicts(stages: Sequence[tuple[ModelStages, Measurement]], when: str) -> str:
    """Say which verdict belongs to the WSR at the end of a training or an attack."""
    said = [f"{model.label} {verdict_note(stage.owned, stage.p_value)}" for model, stage in stages]
    return f"After {when}: {'; '.join(said)}." if said else ""


def _strengths(title: str, stages: Sequence[tuple[ModelStages, Measurement]]) -> Panel:
    """Return a panel of BA and WSR over the strength of an attack, one chart for each model that has a curve."""
    charts = []
    for model, stage in stages:
        curve: Mapping[str, Any] = stage.curve or {"rows": ()}
        series = []
        for look, (rate, label) in enumerate(_STRENGTH_RATES.items()):
            known = [row for row in curve["rows"] if row.get(rate) is not None]
            hollow = [at for at, row in enumerate(known) if rate == "wsr" and row.get("owned") is False]
            if known:
                points = tuple((row["value"], 100.0 * row[rate]) for row in known)
                series.append(Series(label, look, points, tuple(hollow)))
        if series:
            name, chosen = str(curve["name"]), curve.get("chosen")
            taken = "" if chosen is None else f", {name} {chosen:g} chosen"
            note = _verdicts([(model, stage)], title)
            charts.append(Chart(f"{model.label}{taken}", "%", tuple(series), title, name.capitalize(), note=note))
    return Panel.of(f"Attack: {title}, at each strength", charts)


def _points(stage: Measurement, before: Measurement | None, name: str) -> tuple[Point, ...]:
    rows = list(run_of(stage).history())
    scale, epochs = 100.0 if name in _RATES else 1.0, _epochs(rows)
    values = zip(epochs, [row.get(name) for row in rows], strict=True)
    measured = {epoch: scale * value for epoch, value in values if isinstance(value, int | float)}
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


def table_charts(grid: Grid) -> Panel | None:
    """Return the charts of a table; None for that of BA, and where nothing can be drawn."""
    if grid.measure != "wsr":
        return None
    kinds: list[tuple[str, Read]] = []
    if grid.measured:
        kinds.append(("measured", lambda entry: None if entry.measured is None else entry.measured.mean))
    if not grid.measured or grid.compared:
        kinds.append(("reported", lambda entry: entry.reported))
    over, pivot = _pivot(grid)
    looks = _looks(list(dict.fromkeys(label for curves in pivot.values() for label in curves)))
    charts = [
        _chart(f"{title}, {kind}" if title else kind.capitalize(), over, curves, kind, read, looks)
        for title, curves in pivot.items()
        for kind, read in kinds
    ]
    kept = [chart for chart in charts if chart.series]
    return Panel.of("WSR in a picture", kept, _HOLLOW) if kept else None


def _looks(labels: Sequence[str]) -> dict[str, int]:
    """Give each curve a look: methods their own, others those that are left."""
    known = {label: _LOOKS[label] for label in labels if label in _LOOKS}
    left = (number for number in count() if number not in known.values())
    return {label: known[label] if label in known else next(left) for label in labels}


def _pivot(grid: Grid) -> tuple[str, dict[str, dict[str, Curve]]]:
    """Return the title of the horizontal axis, and the curves of each chart by their titles."""
    across, axes = grid.layout.across, grid.layout.axes
    alone = len(grid.groups) == 1
    over = {"attacks": "Attack", "rows": axes[-1].title, "groups": ", ".join(axis.title for axis in axes[:-1])}[across]
    charts: dict[str, dict[str, Curve]] = {}
    for number, column in enumerate(grid.columns):
        if column.measure != "wsr" or column.condition is None or (across != "attacks" and column.group != "After"):
            continue
        attack = column.title if column.group == "After" else "Before"
        for row in grid.rows:
            group, own = ", ".join(row.labels[:-1]) if grid.layout.grouped else "", _own(grid, row)
            if across == "attacks":
                chart, curve, tick = group, own, attack
            elif across == "groups":
                chart, curve, tick = attack, own, group
            else:
                chart, curve, tick = ("", attack, own) if alone else (attack, group, own)
            if not row.quoted:  # two quoted numbers are no curve
                charts.setdefault(chart, {}).setdefault(curve, {})[tick] = row.entries[number]
    return over, charts


def _own(grid: Grid, row: Row) -> str:
    if grid.layout.grouped or len(row.labels) == 1:
        return row.labels[-1]
    # Rows of ticks are called what they are elsewhere.
    named = next((method for method, parts in COMPONENTS.items() if parts == row.key), None)
    return ", ".join(row.labels) if named is None else title_of(named)


def _chart(
    title: str, over: str, curves: Mapping[str, Curve], kind: str, read: Read, looks: Mapping[str, int]
) -> Chart:
    ticks = list(dict.fromkeys(tick for curve in curves.values() for tick in curve))
    series = []
    for label, curve in curves.items():
        known = [(tick, entry, value) for tick, entry in curve.items() if (value := read(entry)) is not None]
        points = tuple((float(ticks.index(tick)), 100 * value) for tick, _, value in known)
        # For any seed, a verdict behind the measured WSR does not show ownership.
        lost = [any(one.owned is False for one in entry.judged) for _, entry, _ in known]
        hollow = tuple(at for at, shown in enumerate(lost) if shown and kind == "measured")
        if points:
            series.append(Series(label, looks[label], points, hollow))
    return Chart(title, "%", tuple(series), "WSR", over, tuple(ticks))
