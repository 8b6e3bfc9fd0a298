"""One description per table; no table has a function of its own. Those of the paper are in ``tables.toml``.

A layout says which coordinate each row heading shows, which attacks are columns, and how a row is summed up. What is
printed follows from it: before attack BA and WSR, after each attack WSR, the summary; and the same once more for BA.

| summary | title | of a row | source |
|---|---|---|---|
| ``avg_drop`` | AvgDrop | WSR before minus the mean WSR after the attacks | caption of Table 1 |
| ``avg`` | AVG | mean after the attacks | appendix, varying magnitude |

A table of one's own is one registration, ``TABLES.add(Layout(name=..., presets=(...), ...))``: it is filled with the
results of the presets that it names. An installed package names its layouts as entry points of ``indelible.tables``.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from indelible.base.errors import InputError
from indelible.base.registry import Registry
from indelible.bench.measurement import PAPER_ATTACKS, Measurement, Results
from indelible.bench.reported import REPORTED_TABLES
from indelible.report.model_stages import short_title

_FILE = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
_TITLES: Mapping[str, str] = _FILE["methods"] | _FILE["titles"]


def title_of(value: Any) -> str:
    """Write a coordinate for people; a name that is not known stays as it is."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓" if value else "–"
    if isinstance(value, float):
        return f"{value:g}"
    return _TITLES.get(str(value), str(value))


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A column of row headings."""

    title: str  # its heading
    field: str  # the coordinate that it shows
    order: tuple[Any, ...] = ()  # its values in the order of the paper; others follow in their own order

    def rank(self, value: Any) -> tuple[int, float, str]:
        """Return what rows are sorted by."""
        if value in self.order:
            return self.order.index(value), 0.0, ""
        return len(self.order), float(value) if isinstance(value, int | float) else 0.0, str(value)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What happened to a model: an attack, and what it was made with if the table varies that."""

    title: str
    attack: str | None
    factors: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, measurement: Measurement) -> bool:
        """Tell whether ``measurement`` was made under it."""
        if not self.factors:
            return measurement.column == self.attack
        return measurement.attack == self.attack and all(
            measurement.factors.get(name) == value for name, value in self.factors.items()
        )


BEFORE = Condition(title="Before", attack=None)
_AXES = {
    name: Axis(title=given["title"], field=name, order=tuple(given.get("order", ())))
    for name, given in {**_FILE["axes"], "method": {"title": "Method", "order": _FILE["methods"]}}.items()
}
KIND, METHOD = _AXES["kind"], _AXES["method"]


def _condition(given: str | Mapping[str, Any]) -> Condition:
    """Return the condition that an attack's name, or a file, describes."""
    return Condition(title=short_title(given), attack=given) if isinstance(given, str) else Condition(**given)


_SIX = tuple(map(_condition, PAPER_ATTACKS))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A table."""

    name: str  # what it is called on the command line
    title: str  # its heading
    caption: str  # what it shows, in a sentence
    axes: tuple[Axis, ...] = (KIND, METHOD)  # row headings; rows that agree in all but the last are a group
    conditions: tuple[Condition, ...] = _SIX  # the attacks, in the order of the columns
    summary: Literal["avg_drop", "avg"] | None = "avg_drop"  # how a row is summed up
    # the attacks that a summary is taken over; by default all of the table
    counted: tuple[Condition, ...] | None = None
    sections: tuple[str, ...] = ()  # where the paper's numbers come from; none if it prints none
    only: Mapping[str, Any] = field(default_factory=dict)  # coordinates that every row has
    methods: tuple[str, ...] = ()  # whose reported rows are shown without a measurement beside them; empty for all
    presets: tuple[str, ...] = ()  # names of presets that measure it
    grouped: bool = True  # whether rows are compared within their groups, or all with all
    bold: bool = True  # whether the best of each column is bold
    # what a figure's horizontal axis shows: the attacks, the last row heading, or the groups
    across: Literal["attacks", "rows", "groups"] = "attacks"
    unmeasured: bool = True  # whether reported rows stand without a measurement where others have one
    note: str = ""  # what a reader must know beside the caption

    @property
    def summed(self) -> tuple[Condition, ...]:
        """The attacks that a summary is taken over."""
        return self.conditions if self.counted is None else self.counted

    @property
    def as_in_the_paper(self) -> bool:
        """Whether a summary is over the paper's attacks, so that the one that it prints can stand beside it."""
        return self.counted is None or {one.attack for one in self.counted} == set(PAPER_ATTACKS)

    def admits(self, measurement: Measurement) -> bool:
        """Tell whether ``measurement`` belongs into the table."""
        return all(measurement.value(name) == value for name, value in self.only.items())


class TableRegistry(Registry[Layout]):
    """Tables by name; those of other packages follow ours, and of several for one preset the last is filled."""

    def entries(self) -> list[Layout]:
        """Return all tables, after loading the entry points that are not loaded yet."""
        for point in entry_points(group="indelible.tables"):
            if point.name in self._entries:
                continue
            where = f"the entry point {point.name!r} of the group 'indelible.tables' ({point.value})"
            try:
                found = point.load()
            except Exception as error:
                raise InputError(f"{where} cannot be loaded: {error!r}. Fix or uninstall its package.") from error
            if not isinstance(found, Layout) or found.name != point.name:
                raise InputError(f"{where} must be a Layout of the same name, got {found!r}.")
            if found.name not in self._entries:  # its module may have added it itself
                self.add(found)
        return super().entries()


TABLES = TableRegistry("table")


for _given in _FILE["tables"]:
    _read: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in _given.items()}
    if "axes" in _read:
        _read["axes"] = tuple(_AXES[name] for name in _read["axes"])
    if "conditions" in _read:
        _read["conditions"] = tuple(_condition(one) for one in _read["conditions"])
    TABLES.add(Layout(**{**_read, "summary": _read.get("summary", "avg_drop") or None}))  # an empty one is none
MAIN = ("cifar10", "cifar100", "imagenet100")
"""The three main tables."""


def layout_for(results: Results) -> Layout:
    """Return the table that a preset fills; for one that the paper has not, the main layout on what was measured."""
    preset, seen = results.preset, results.measurements
    known = next((layout for layout in reversed(TABLES.entries()) if preset in layout.presets), None)
    if known is not None:
        places = [
            (tuple(one.value(axis.field) for axis in known.axes), one.column, one.seed)
            for one in seen
            if known.admits(one)
        ]
        # Any cell has a place in it, and no two cells of a seed fall into one.
        if len(set(places)) == len(places) > 0:
            return replace(
                known, name=preset, title=f"{known.title}: {preset}" if preset != known.name else known.title
            )
    datasets = sorted({one.dataset for one in seen})
    axes = [
        Axis(title=title, field=name)
        for title, name in (("Data", "dataset"), ("Network", "architecture"))
        if len({one.value(name) for one in seen}) > 1
    ]
    # A preset's own names of marks and attacks tell its rows and columns apart.
    axes.append(replace(KIND, field="mark"))
    own = results.attacks or sorted({one.column for one in seen if one.column is not None})
    others = [name for name in own if name not in PAPER_ATTACKS]
    conditions = (*_SIX, *map(_condition, others))
    counted = tuple(one for one in conditions if one.attack in own)
    note = ""
    if counted and {*own} != {*PAPER_ATTACKS}:
        titles = ", ".join(one.title for one in counted)
        note = f"AvgDrop is the mean over the preset's own attacks: {titles}."
    return Layout(
        # Part of file names and anchors: the path of a preset's file would be neither.
        name=re.sub(r"[^\w.-]+", "-", Path(preset).stem if preset.endswith(".toml") else preset).strip("-") or "preset",
        title=results.title or f"Preset {preset}", axes=(*axes, METHOD),
        caption=f"What the preset {preset} measured on {', '.join(map(title_of, datasets))}.",
        sections=tuple(name for name in datasets if name in REPORTED_TABLES), unmeasured=False, conditions=conditions,
        counted=counted, note=note,
    )  # fmt: skip
