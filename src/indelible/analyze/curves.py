"""Curves: WSR and BA against one thing that was varied, from the records of many runs.

Paper: Gan et al., ICCV 2023: eps (Figure 5), architecture (Figure 6 and Appendix D), trigger size and transparency
(Figure 8), target class (Appendix C), ANP's threshold and MCR's t (Appendix B); the rate of FP is ours.

| variable | what is read |
|---|---|
| ``eps`` | the embedding method's setting |
| ``target``, ``size``, ``transparency`` | settings of the key |
| ``architecture`` | the network |
| ``threshold``, ``t``, ``rate`` | the measured curve of ANP, MCR, FP: one point a strength, before any fine-tuning |
| ``u`` | the measured curve of CLP or BNP; ``share``, ``weight_bits``, ``sigma``: of pruning, quantisation, noise |

Records are the cells of a benchmark's export (a JSON file with ``cells``) or run folders. Seeds are averaged; the
standard deviation over them (n - 1) and their number are kept. Where the paper reports a number, it stands beside.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

from indelible.analyze.document import Analysis
from indelible.base.errors import DamagedFileError, InputError, UnknownNameError
from indelible.base.files import read_json
from indelible.train.run import Run

__all__ = ["STRENGTHS", "VARIABLES", "Curves", "Line", "Mark", "cells_of", "cells_of_runs", "curves"]

Cell = Mapping[str, Any]
STRENGTHS = ("threshold", "t", "rate", "u", "share", "weight_bits", "sigma")
VARIABLES = ("eps", "target", "size", "transparency", "architecture", *STRENGTHS)
_SETTINGS = {"eps": "method_settings", "target": "key", "size": "key", "transparency": "key"}
_MODEL = ("dataset", "architecture", "kind", "method", "seed")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One point of a curve; rates are fractions.

    Attributes:
        x: The value, as it is written.
        at: The value as a number; None for names.
        wsr: Mean over seeds.
        ba: Mean over seeds.
        wsr_sd: Standard deviation over seeds; None for one seed.
        ba_sd: Likewise.
        seeds: How many.
        reported_wsr: The paper's number, if there is one.
    """

    x: str
    at: float | None
    wsr: float | None
    ba: float | None
    wsr_sd: float | None
    ba_sd: float | None
    seeds: int
    reported_wsr: float | None


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve: a method and an attack, and whatever else tells it from the others."""

    label: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True)
class Curves(Analysis):
    """WSR and BA against one variable.

    Attributes:
        variable: What was varied.
        lines: The curves.
    """

    figure: ClassVar[str] = "curves"
    variable: str
    lines: tuple[Line, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a point."""
        return [
            {"line": line.label, self.variable: mark.x}
            | {name: getattr(mark, name) for name in Mark.__dataclass_fields__ if name not in {"x", "at"}}
            for line in self.lines
            for mark in line.marks
        ]

    def sentences(self) -> list[str]:
        """Say for each curve how far WSR ranges."""
        said = []
        for line in self.lines:
            known = [(mark.wsr, mark.x) for mark in line.marks if mark.wsr is not None]
            if known:
                (low, at_low), (high, at_high) = min(known), max(known)
                said.append(
                    f"{line.label}: WSR from {100 * low:.1f} % (at {at_low}) to {100 * high:.1f} % (at {at_high}) over "
                    f"{len(line.marks)} values of {self.variable}."
                )
        return said


def cells_of(path: str | Path) -> list[Cell]:
    """Read the cells of a benchmark's export.

    Raises:
        DamagedFileError: The file has none.
    """
    found = read_json(path)
    cells = found.get("cells") if isinstance(found, Mapping) else None
    if not isinstance(cells, list) or not all(isinstance(cell, Mapping) for cell in cells):
        raise DamagedFileError(
            f"{path} has no list of cells. Write it with `indelible bench results PRESET --out FILE`."
        )
    return cells


def cells_of_runs(folders: Iterable[str | Path]) -> list[Cell]:
    """Turn run folders into cells: embedding runs without an attack, attacks with the settings of what they attack."""
    return [_cell(Run.load(folder)) for folder in folders]


def _cell(run: Run) -> Cell:
    attacked = run.record.verb == "attack"
    origin = Run.load(run.parent) if attacked and run.parent is not None else run
    verdict, metrics = run.verdict() or {}, run.record.metrics
    key = run.key().public() if is_known(run) else {}
    return {
        "dataset": run.data, "architecture": run.architecture.name, "kind": key.get("kind"),
        "method": origin.record.method, "attack": run.record.method if attacked else None, "seed": origin.record.seed,
        "settings": {
            "method": origin.record.method, "method_settings": origin.record.settings.get("method", {}), "key": key,
        },
        "measured": {name: verdict.get(name, metrics.get(name)) for name in ("ba", "wsr", "p_value")},
        "curve": run.curve(),
    }  # fmt: skip


def is_known(run: Run) -> bool:
    """Tell whether a run's key is at hand."""
    return (run.folder / "key").is_dir() or (run.parent is not None and (run.parent / "key").is_dir())


def curves(cells: Sequence[Cell], variable: str, *, attack: str | None = None, kind: str | None = None) -> Curves:
    """Gather WSR and BA against ``variable``.

    Args:
        cells: Records, see the module's header.
        variable: What was varied; one of :data:`VARIABLES`.
        attack: Only cells of this attack; ``"none"`` for models before any.
        kind: Only cells of this kind of mark, by their label.
    """
    if variable not in VARIABLES:
        raise UnknownNameError("variable", variable, VARIABLES)
    models = {_model(cell): cell for cell in cells if cell.get("attack") is None}
    wanted = [
        cell for cell in cells if attack in {None, cell.get("attack") or "none"} and kind in {None, cell.get("kind")}
    ]
    # An attack's record names the model by its labels; what the model was made with stands in the model's own.
    known = [
        (cell, {**(models.get(_model(cell), {}).get("settings") or {}), **(cell.get("settings") or {})})
        for cell in wanted
    ]
    labels = _labels(known, variable)
    samples: list[Sample] = []
    for label, (cell, settings) in zip(labels, known, strict=True):
        if variable in STRENGTHS:
            samples += _strengths(cell, label, variable)
            continue
        value = cell.get("architecture") if variable == "architecture" else _value(settings, variable)
        if value is not None:
            samples.append((label, value, cell.get("measured") or {}, _reported(cell)))
    lines = _lines(samples, varied=variable not in STRENGTHS)
    if not lines:
        raise InputError(
            f"no records vary {variable}: {len(cells)} were read. Run a benchmark in which it varies, or choose "
            "another variable."
        )
    return Curves(variable=variable, lines=tuple(lines))


Sample = tuple[str, Any, Mapping[str, Any], float | None]


def _model(cell: Cell) -> tuple[Any, ...]:
    return tuple(cell.get(name) for name in _MODEL)


def _strengths(cell: Cell, label: str, variable: str) -> list[Sample]:
    curve = cell.get("curve")
    if not isinstance(curve, Mapping) or curve.get("name") != variable:
        return []
    return [(label, row["value"], row, None) for row in curve.get("rows", ())]


def _value(settings: Mapping[str, Any], variable: str) -> Any:
    """Return what a model was made with. An attack may have a setting of that name too (ANP has an eps): not that."""
    for place in (settings.get(_SETTINGS[variable]), settings):
        if isinstance(place, Mapping) and place.get(variable) is not None:
            return place[variable]
    return None


def _labels(known: Sequence[tuple[Cell, Mapping[str, Any]]], variable: str) -> list[str]:
    """Name each record's curve: method and attack, and whatever else differs among the records but is not varied.

    A preset's own label of a kind may hold the very value that is varied: registered names come first.
    """
    others = []
    for cell, settings in known:
        key = settings.get("key")
        kind = key.get("kind") if isinstance(key, Mapping) else None
        network = None if variable == "architecture" else cell.get("architecture")
        others.append((cell.get("dataset"), network, kind or cell.get("kind")))
    differing = [len(set(column)) > 1 for column in zip(*others, strict=True)]
    made = []
    for (cell, settings), parts in zip(known, others, strict=True):
        method = _method(cell, settings, variable)
        after = f" after {str(cell['attack']).upper()}" if cell.get("attack") else ""
        more = [str(part) for part, differs in zip(parts, differing, strict=True) if differs]
        made.append(", ".join([f"{method}{after}", *more]))
    return made


def _method(cell: Cell, settings: Mapping[str, Any], variable: str) -> str:
    """Name a record's method. Only over eps are APP and its control, which is APP with eps 0, the same curve."""
    own, registered, details = cell.get("method"), settings.get("method"), settings.get("method_settings")
    if variable == "eps":
        return str(registered if isinstance(registered, str) else own)
    unperturbed = isinstance(details, Mapping) and details.get("eps") == 0
    return f"{own} (eps 0)" if own == registered and unperturbed else str(own)


def _reported(cell: Cell) -> float | None:
    found = cell.get("reported")
    value = found.get("wsr") if isinstance(found, Mapping) else None
    return None if value is None else float(value)


def _lines(samples: Sequence[Sample], *, varied: bool) -> list[Line]:
    """Average samples of one label and value; a label with one value only is no curve."""
    grouped: dict[str, dict[Any, list[Sample]]] = {}
    for sample in samples:
        grouped.setdefault(sample[0], {}).setdefault(sample[1], []).append(sample)
    return [
        Line(label=label, marks=tuple(_mark(value, values[value]) for value in sorted(values, key=_order(values))))
        for label, values in grouped.items()
        if len(values) > 1 or not varied
    ]


def _order(values: Iterable[Any]) -> Callable[[Any], Any]:
    """Sort numbers by size, names as they came."""
    known = list(values)
    return (lambda value: value) if all(_is_number(value) for value in known) else known.index


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mark(value: Any, samples: Sequence[Sample]) -> Mark:
    rates = {
        name: [float(sample[2][name]) for sample in samples if sample[2].get(name) is not None]
        for name in ("wsr", "ba")
    }
    mean = {name: fmean(found) if found else None for name, found in rates.items()}
    spread = {name: stdev(found) if len(found) > 1 else None for name, found in rates.items()}
    reported = [sample[3] for sample in samples if sample[3] is not None]
    return Mark(
        x=f"{value:g}" if _is_number(value) else str(value), at=float(value) if _is_number(value) else None,
        wsr=mean["wsr"], ba=mean["ba"], wsr_sd=spread["wsr"], ba_sd=spread["ba"], seeds=len(samples),
        reported_wsr=fmean(reported) if reported else None,
    )  # fmt: skip
