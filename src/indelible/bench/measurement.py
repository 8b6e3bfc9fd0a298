"""One measurement: a model, before or after one attack, with what was measured of it.

Tables, curves, figures and pages all work with this shape, wherever the numbers come from:

| source | reader |
|---|---|
| run folders, those of a benchmark's store too | :func:`of_run`, :func:`read_results` |
| files of results (``results/*.json``) | :func:`read_results`, :func:`results_of` |
| the paper's printed numbers | :mod:`indelible.bench.reported` |

A file of results holds runs as :func:`exported` writes them, and a run folder is read through the same form. Rates are
fractions. A method is told apart by what it does:

| variant | perturbation | clean-sample BatchNorm (c-BN) | in the paper |
|---|---|---|---|
| ``vanilla`` | no | no | Vanilla |
| ``control`` | no | yes | Table 3, second row |
| ``app-only`` | yes | no | Table 3, third row |
| ``app`` | yes | yes | Ours |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.files import read_json
from indelible.train.run_folder import Run

COMPONENTS: Mapping[str, tuple[bool, bool]] = {
    "vanilla": (False, False),
    "control": (False, True),
    "app-only": (True, False),
    "app": (True, True),
}
"""Variant -> (perturbation, c-BN)."""
PAPER_ATTACKS = ("ft", "fp", "anp", "nad", "mcr", "nnl")
"""The six attacks of the paper's tables: AvgDrop is the mean over these."""
_LABELS = {"dataset": "dataset", "architecture": "architecture", "kind": "mark", "method": "method"}
_KEY_FACTORS = ("target", "size", "transparency")
_VERDICT = ("ba", "wsr", "p_value", "owned", "hits", "trials", "decoy_rate", "null_rate", "test")
_CODEBOOK = ("table", "drawn", "counts", "binding")
_FORMAT = 1
CELLS = "cells"
"""Folder of a store in which the run folders of its cells are."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was measured of one model at one moment."""

    dataset: str  # name of the data set
    architecture: str  # name of the network
    mark: str  # what the source calls the watermark: the kind, or a preset's label of it
    method: str  # what the source calls the method: its name, or a preset's label of it
    attack: str | None = None  # name of the removal attack; None before any
    column: str | None = None  # what the source calls the attack, if it makes one attack in several ways
    seed: int | None = None  # of the model's training; None for a mean over runs
    ba: float | None = None  # benign accuracy, on clean test images
    wsr: float | None = None  # watermark success rate, on test images
    wsr_embedded: float | None = None  # the same on the samples that were embedded
    p_value: float | None = None  # of the verdict
    owned: bool | None = None  # whether the verdict shows ownership; None without a verdict
    verdict: Mapping[str, Any] | None = None  # the verdict as JSON values, as far as the source keeps it
    # how the model was made: `method`, `method_settings`, `key`, `train`
    made: Mapping[str, Any] = field(default_factory=dict)
    # all settings of this step: those of the training, or of the attack
    settings: Mapping[str, Any] = field(default_factory=dict)
    # BA and WSR at each strength that an attack could choose, or by epoch: `name`, `chosen`, `rows`
    curve: Mapping[str, Any] | None = None
    seconds: float | None = None  # time it took
    images_per_second: float | None = None  # throughput
    command: str = ""  # what to type to measure it again
    reported: float | None = None  # the paper's WSR of the same cell, if the source names it
    # summaries that the paper prints for the row of a model before attack: `{"wsr avg_drop": 0.5915}`
    printed: Mapping[str, float] = field(default_factory=dict)
    place: str = ""  # where the paper prints the number, if it does
    run: Run | None = None  # the run that it was read from, if it was one

    def __post_init__(self) -> None:
        if self.column is None:
            object.__setattr__(self, "column", self.attack)

    @property
    def model(self) -> tuple[Any, ...]:
        """What a model shares with the attacks on it."""
        return self.dataset, self.architecture, self.mark, self.method, self.seed

    @property
    def kind(self) -> str:
        """The registered kind of the mark."""
        return str(_part(self.made, "key").get("kind") or self.mark)

    @property
    def variant(self) -> str:
        """The method by what it does; see the module's header."""
        name, own = self.made.get("method"), _part(self.made, "method_settings")
        if name != "app":
            return str(name or self.method)
        parts = own.get("eps", 1) != 0, bool(own.get("clean_bn", True))
        # Neither: the extra exposure alone, which the paper has not.
        return next((variant for variant, known in COMPONENTS.items() if any(parts) and known == parts), "exposure")

    @property
    def factors(self) -> dict[str, Any]:
        """What a table may vary beside names: ``eps``, ``target``, ``size``, ``transparency``, ``lr`` of an attack."""
        key = _part(self.made, "key")
        found = {name: key.get(name) for name in _KEY_FACTORS}
        # An attack may have an eps of its own (ANP has): the model's counts.
        found["eps"] = _part(self.made, "method_settings").get("eps")
        found["lr"] = _part(self.settings, "attack_settings").get("lr")
        return {name: value for name, value in found.items() if value is not None}

    def value(self, name: str) -> Any:
        """Return a coordinate by name: a field, a component (``perturbation``, ``cbn``) or a factor."""
        if name in {"perturbation", "cbn"}:
            return COMPONENTS.get(self.variant, (None, None))[name == "cbn"]
        return self.factors.get(name) if name not in {*_LABELS, "mark", "variant", "attack"} else getattr(self, name)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The cells of one preset, as the benchmark exports them."""

    preset: str  # its name, or the path of its file
    measurements: tuple[Measurement, ...]  # what was measured
    title: str = ""  # its title; empty if the results do not say
    # its labels of attacks, whether measured yet or not; None if the results do not say
    attacks: tuple[str, ...] | None = None


def run_folders(paths: Sequence[str | Path]) -> list[Path]:
    """Replace folders that contain runs by these runs, in the order of their names; each run comes once."""
    found: dict[Path, Path] = {}
    for given in paths:
        place = Path(given)
        inside = sorted(file.parent for file in place.rglob("run.json")) if place.is_dir() else []
        if not inside:
            Run.load(place)  # says what is wrong with it
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise InputError("a report needs at least one run. Name its folder: indelible report runs/app")
    return list(found.values())


def of_run(run: Run, column: str | None = None) -> Measurement:
    """Read what is known of a run's model; ``column`` is what to call the attack, its name by default."""
    origin = _origin(run)
    one = _of_cell(exported(run), str(run.folder))
    made = one.settings if origin is run else exported(origin)["settings"]
    return replace(one, column=column or one.column, made=made, verdict=run.verdict, run=run)


def exported(run: Run) -> dict[str, Any]:
    """Return a run as files of results hold it, complete without its folder; docs/benchmark.md explains the fields.

    Labels are those of the benchmark that made it, or the run's own. A verdict has the last word over what was measured
    in training. Two runs of a cell differ in times, speeds, hardware and versions only.
    """
    record, verdict = run.record, {name: value for name, value in (run.verdict or {}).items() if value is not None}
    measured = {name: value for name, value in record.metrics.items() if name not in {"ba", "wsr", "curve"}}
    measured |= {**dict.fromkeys(_VERDICT), **{name: record.metrics.get(name) for name in ("ba", "wsr")}}
    kept = (*_VERDICT, "wsr_embedded", *(_CODEBOOK if verdict.get("table") else ()))
    measured |= {name: verdict[name] for name in kept if name in verdict}
    wanted = ("phase", "epoch", "ba", "wsr", "wsr_embedded")
    return {
        "format": _FORMAT,
        **(run.cell or _described(run)),
        **{name: getattr(record, name) for name in ("inputs", "seconds", "images", "hardware", "versions")},
        "measured": measured,
        "curve": run.curve,
        "history": [{name: row[name] for name in wanted if name in row} for row in run.history if "wsr" in row],
        "images_per_second": record.images / record.seconds if record.seconds > 0 else None,
    }


def _described(run: Run) -> dict[str, Any]:
    """Return labels and settings of a run that no benchmark made."""
    record, first, key = run.record, _origin(run).record, _public_key(run)
    attacked, own = record.verb == "attack", record.settings.get("method", {})
    settings = {"attack": record.method, "attack_settings": own} if attacked else {"method_settings": own, "key": key}
    return {
        "dataset": run.data, "architecture": run.architecture.name, "method": first.method, "seed": first.seed,
        "kind": str(key.get("kind") or first.inputs.get("kind") or ""), "attack": record.method if attacked else None,
        "settings": {**record.settings, "method": first.method, **settings},
    }  # fmt: skip


def _origin(run: Run) -> Run:
    """Return the run whose model was attacked, if it is at hand, or the run itself."""
    return Run.load(run.parent) if run.parent is not None and Run.finished(run.parent) else run


def _public_key(run: Run) -> Mapping[str, Any]:
    """Return the public settings of a run's key; none where the key is not at hand, or damaged."""
    try:
        return run.key().public()
    except IndelibleError:
        return {}


def read_measurements(paths: Sequence[str | Path]) -> list[Measurement]:
    """Read everything in ``paths``: results of the benchmark, stores, runs, and folders that contain runs."""
    results = [path for path in map(Path, paths) if path.is_file() or is_store(path)]
    folders = [path for path in map(Path, paths) if path not in results]
    found = [one for path in results for preset in read_results(path) for one in preset.measurements]
    return found + ([of_run(Run.load(folder)) for folder in run_folders(folders)] if folders else [])


def is_store(path: str | Path) -> bool:
    """Tell whether a folder is a store of the benchmark: run folders of cells."""
    return (Path(path) / CELLS).is_dir()


def read_results(path: str | Path) -> list[Results]:
    """Read results: a JSON file of one preset, or a store with whatever is finished in it.

    In a store each cell counts for the preset that made it, which its run names. A preset whose cells another one
    made is exported in full by ``indelible bench results``.
    """
    if not is_store(path):
        return [results_of(read_json(path), str(path))]
    presets: dict[str, dict[str, Any]] = {}
    for folder in filter(Run.finished, sorted((Path(path) / CELLS).iterdir())):
        cell = exported(Run.load(folder))
        name = str(cell.get("preset") or "cells")
        about = {"preset": name, "title": cell.get("title"), "attacks": cell.get("attacks")}
        presets.setdefault(name, {**about, "cells": []})["cells"].append(cell)
    if not presets:
        raise InputError(f"the store {path} has no finished cell yet. See the progress: indelible bench status PRESET")
    return [results_of(found, f"{path}") for _, found in sorted(presets.items())]


def results_of(document: Any, where: str) -> Results:
    """Read the results of a preset from JSON values; ``where`` names them in errors."""
    cells = document.get("cells") if isinstance(document, Mapping) else None
    if not isinstance(cells, list):
        raise DamagedFileError(
            f"{where} must hold the results of a preset: 'preset' and a list 'cells'. "
            "Write them with: indelible bench results PRESET --out FILE"
        )
    title, attacks = document.get("title"), document.get("attacks")
    return Results(
        preset=str(document.get("preset") or "cells"), measurements=tuple(of_cells(cells, where)),
        title=title if isinstance(title, str) else "",
        attacks=tuple(map(str, attacks)) if isinstance(attacks, list) else None,
    )  # fmt: skip


def of_cells(cells: Iterable[Any], where: str = "these results") -> list[Measurement]:
    """Read cells of the benchmark; an attack's cell takes how its model was made from the model's cell."""
    found = [_of_cell(cell, f"cell {number} of {where}") for number, cell in enumerate(cells, 1)]
    models = {one.model: one.settings for one in found if one.column is None}
    return [replace(one, made=one.settings if one.column is None else models.get(one.model, {})) for one in found]


def _of_cell(cell: Any, where: str) -> Measurement:
    _check(cell, Mapping, where, "an object")
    labels = {name: _check(cell.get(known), str, where, f"a text {known!r}") for known, name in _LABELS.items()}
    measured = _check(cell.get("measured"), Mapping, where, "'measured' with its numbers")
    label = _check(cell.get("attack"), str | None, where, "a text 'attack', or null")
    owned = _check(measured.get("owned"), bool | None, where, "'owned' as true or false")
    seed, settings = cell.get("seed"), _part(cell, "settings")
    return Measurement(
        **labels, attack=None if label is None else str(settings.get("attack") or label), column=label,
        seed=seed if isinstance(seed, int) else None, owned=owned, verdict=measured, settings=settings,
        **_numbers(measured, where),
        seconds=_number(cell, "seconds", where), images_per_second=_number(cell, "images_per_second", where),
        command=str(cell.get("command") or ""), reported=_number(_part(cell, "reported"), "wsr", where),
        curve=_part(cell, "curve") or _by_epoch(cell.get("history")),
    )  # fmt: skip


def _by_epoch(rows: Any) -> Mapping[str, Any] | None:
    """Give the rates of a model by epoch the form of a curve."""
    if not isinstance(rows, list) or not rows:
        return None
    return {"name": "epoch", "chosen": None, "rows": [{"value": row.get("epoch"), **row} for row in rows]}


def _part(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _numbers(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the rates and the p-value among ``values``."""
    return {name: _number(values, name, where) for name in ("ba", "wsr", "wsr_embedded", "p_value")}


def _number(values: Mapping[str, Any], name: str, where: str) -> float | None:
    found = values.get(name)
    wanted = None if isinstance(found, bool) else int | float | None  # a bool is an int to Python, but no number
    _check(found, wanted or type(None), where, f"a number {name!r}")
    return None if found is None else float(found)


def _check(value: Any, kind: Any, where: str, expected: str) -> Any:
    """Return ``value``, or refuse one of another kind."""
    if not isinstance(value, kind):
        raise DamagedFileError(f"{where} must have {expected}, got {value!r}. Restore or export it again.")
    return value
