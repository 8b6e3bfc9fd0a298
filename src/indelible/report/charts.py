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

from collections.abc import Mapping, Sequence
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
    from matplotlib.figure import Figure

Point = tuple[float, float]
_QUANTITIES = {"loss": "Training loss", "ba": "Benign accuracy (BA)", "wsr": "Watermark success rate (WSR)"}
_RATES = ("ba", "wsr")
_STRENGTH_RATES = {"ba": "BA", "wsr": "WSR", "accuracy": "Accuracy on the attacker's held-out images"}
# A method looks the same in every figure; APP has the solid line.
_LOOKS = {"Vanilla": 0, "EW": 1, "APP": 2, "CW": 3, "c-BN only": 4, "APP only": 5}


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
    """The charts of one stage, and what a reader must know beside them."""

    title: str
    charts: tuple[Chart, ...]
    legend: tuple[tuple[str, int], ...]  # the looks that they use: (label, number)
    note: str = ""

    @classmethod
    def of(cls, title: str, charts: Sequence[Chart], more: str = "") -> "Panel":
        """Return a panel whose legend names every series; ``more`` follows its note where markers are hollow."""
        series = [one for chart in charts for one in chart.series]
        hollow = f"Hollow markers of WSR: the verdict does not show ownership there.{more}"
        legend = {one.label: one.look for one in series}
        return cls(title, tuple(charts), tuple(legend.items()), hollow if any(one.hollow for one in series) else "")


def draw(chart: Chart, name: str) -> "Markup":
    """Return ``chart`` as an ``<svg>`` element; ``name`` is the prefix of its ids."""
    places = [point[0] for series in chart.series for point in series.points]
    first, last = min(places), max(places)
    whole = chart.over == "Epoch" or bool(chart.ticks)
    # A single measurement gets room on both sides, or its axis would show fractions of an epoch.
    margin = 0.03 * max(last - first, 1 if whole else 0) if last > first else 0.5

    def plot(figure: "Figure", ink: Ink) -> None:
        from matplotlib.ticker import MaxNLocator

        # Fixed margins: the axes of charts side by side line up.
        axes = figure.add_axes((0.13, 0.17, 0.83, 0.78))
        for series in chart.series:
            xs, ys = zip(*series.points, strict=True)
            draw_series(axes, xs, ys, series.look, ink, hollow=series.hollow)
        axes.set_xlim(first - margin, last + margin)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole))
        axes.set_xlabel(chart.over)
        if chart.ticks:
            axes.set_xticks(range(len(chart.ticks)), chart.ticks)
        if chart.unit == "%":
            percent_axis(axes)
        else:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5))

    # 360 points wide, so that one is one pixel of a 360-pixel phone.
    return as_inline(Drawing(360 * 25.4 / 72, 250 * 25.4 / 72, plot, chart.alt, small=False), name)


def sparkline(curve: Any) -> "Markup | None":
    """Return the curve (``name``, ``chosen``, ``rows``) as ``<svg>``; None if there is nothing to draw."""
    return drawn_by("sparkline.svg.j2", curve=curve) or None


def panels(models: Sequence[ModelStages]) -> list[Panel]:
    """Return a panel for training and one for each attack; those without any point are left out."""
    made = [_panel("Training", "training", models, [(model, model.before) for model in models if model.before])]
    for title in dict.fromkeys(str(stage.column) for model in models for stage in model.after):
        attacked = [(model, stage) for model in models for stage in model.after if stage.column == title]
        made.append(_panel(f"Attack: {title}", title, models, attacked))
        charts = [chart for model, stage in attacked for chart in _strengths(model, stage)]
        made.append(Panel.of(f"Attack: {title}, at each strength", charts))
    return [panel for panel in made if panel.charts]


def _panel(
    title: str, when: str, models: Sequence[ModelStages], stages: Sequence[tuple[ModelStages, Measurement]]
) -> Panel:
    """Return a chart of each quantity over the epochs; models of one method share a look."""
    methods = list(dict.fromkeys(model.method for model in models))
    charts = []
    for name, words in _QUANTITIES.items():
        counted = [(model, stage) for model, stage in stages if model.marked or name != "wsr"]
        series = [
            Series(model.label, methods.index(model.method), points)
            for model, stage in counted
            if (points := _points(stage, None if stage is model.before else model.before, name))
        ]
        if series:
            said = [_verdict(model, stage) for model, stage in counted] if name == "wsr" else []
            note = f"After {when}: {'; '.join(said)}." if said else ""
            charts.append(Chart(words, "%" if name in _RATES else "nats", tuple(series), when, note=note))
    shown = {model.method: methods.index(model.method) for model, _ in stages}
    return Panel(title, tuple(charts), tuple(shown.items()))


def _verdict(model: ModelStages, stage: Measurement) -> str:
    return f"{model.label} {verdict_note(stage.owned, stage.p_value)}"


def _strengths(model: ModelStages, stage: Measurement) -> list[Chart]:
    """Return a chart of BA and WSR over the strength of an attack, if the model has a curve."""
    curve: Mapping[str, Any] = stage.curve or {"rows": ()}
    series = []
    for look, (rate, label) in enumerate(_STRENGTH_RATES.items()):
        known = [row for row in curve["rows"] if row.get(rate) is not None]
        if known:
            points = tuple((row["value"], 100.0 * row[rate]) for row in known)
            lost = [at for at, row in enumerate(known) if rate == "wsr" and row.get("owned") is False]
            series.append(Series(label, look, points, tuple(lost)))
    if not series:
        return []
    title, name, chosen = str(stage.column), str(curve["name"]), curve.get("chosen")
    taken = "" if chosen is None else f", {name} {chosen:g} chosen"
    note = f"After {title}: {_verdict(model, stage)}."
    return [Chart(f"{model.label}{taken}", "%", tuple(series), title, name.capitalize(), note=note)]


def _points(stage: Measurement, before: Measurement | None, name: str) -> tuple[Point, ...]:
    """Return a quantity by epoch, counted through when a run has several phases, each of which counts from one."""
    rate = name in _RATES
    scale, measured = 100.0 if rate else 1.0, {}
    start, end = (getattr(one, name) if rate and before is not None else None for one in (before, stage))
    if start is not None:
        measured[0.0] = scale * start
    passed = last = 0.0
    for row in run_of(stage).history:
        epoch = float(row.get("epoch", last + 1))
        passed += last if epoch <= last else 0.0
        last = epoch
        if isinstance(value := row.get(name), int | float):
            measured[passed + epoch] = scale * value
    if end is not None and last:
        measured[passed + last] = scale * end
    return tuple(measured.items())


def table_charts(grid: Grid) -> Panel | None:
    """Return the charts of a table; None for that of BA, and where nothing can be drawn."""
    if grid.measure != "wsr":
        return None
    axes, own_chart = grid.layout.axes, grid.layout.across != "attacks"
    groups = ", ".join(axis.title for axis in axes[:-1])
    over = {"attacks": "Attack", "rows": axes[-1].title, "groups": groups}[grid.layout.across]
    # Title of a chart -> label of a curve -> tick of the horizontal axis -> the cell there.
    pivot: dict[str, dict[str, dict[str, Entry]]] = {}
    for number, column in enumerate(grid.columns):
        before = column.group != "After"
        if column.measure == "wsr" and column.condition is not None and not (own_chart and before):
            for row in grid.rows:
                if not row.quoted:  # two quoted numbers are no curve
                    chart, curve, tick = _place(grid, row, "Before" if before else column.title)
                    pivot.setdefault(chart, {}).setdefault(curve, {})[tick] = row.entries[number]
    looks = _looks(list(dict.fromkeys(label for curves in pivot.values() for label in curves)))
    kinds = ["measured"] * grid.measured + ["reported"] * (not grid.measured or grid.compared)
    charts = []
    for title, curves in pivot.items():
        ticks = tuple(dict.fromkeys(tick for curve in curves.values() for tick in curve))
        for kind in kinds:
            made = [_series(label, looks[label], curve, ticks, kind) for label, curve in curves.items()]
            known = tuple(series for series in made if series.points)
            if known:
                named = f"{title}, {kind}" if title else kind.capitalize()
                charts.append(Chart(named, "%", known, "WSR", over, ticks))
    return Panel.of("WSR in a picture", charts, " Of several seeds: for at least one.") if charts else None


def _place(grid: Grid, row: Row, attack: str) -> tuple[str, str, str]:
    """Return in which chart, on which curve and at which tick a row's cell after ``attack`` is; see the header."""
    group, own = ", ".join(row.labels[:-1]) if grid.layout.grouped else "", row.labels[-1]
    if not grid.layout.grouped and len(row.labels) > 1:
        # Rows of ticks are called what they are elsewhere.
        named = next((method for method, parts in COMPONENTS.items() if parts == row.key), None)
        own = ", ".join(row.labels) if named is None else title_of(named)
    if grid.layout.across == "attacks":
        return group, own, attack
    if grid.layout.across == "groups":
        return attack, own, group
    return ("", attack, own) if len(grid.groups) == 1 else (attack, group, own)


def _looks(labels: Sequence[str]) -> dict[str, int]:
    """Give each curve a look: methods their own, others those that are left."""
    left = (number for number in count() if number not in map(_LOOKS.get, labels))
    return {label: _LOOKS[label] if label in _LOOKS else next(left) for label in labels}


def _series(label: str, look: int, curve: Mapping[str, Entry], ticks: Sequence[str], kind: str) -> Series:
    """Return a curve of measured or reported rates; hollow where any seed's verdict does not show ownership."""
    points: list[Point] = []
    hollow = []
    for tick, entry in curve.items():
        ours = None if entry.measured is None else entry.measured.mean
        value = ours if kind == "measured" else entry.reported
        if value is not None:
            if kind == "measured" and any(one.owned is False for one in entry.judged):
                hollow.append(len(points))
            points.append((float(ticks.index(tick)), 100 * value))
    return Series(label, look, tuple(points), tuple(hollow))
