"""Models of run folders, each with its stages: before any attack, and after every attack that was made on it.

Methods and attacks are named in words, so that a reader of a table needs no settings file beside it. A control is named
after what it is: APP without perturbation is "c-BN only (eps 0)", not a second APP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indelible.attacks import ATTACKS
from indelible.base.files import canonical_json
from indelible.base.records import Record
from indelible.bench.measurement import PAPER_ATTACKS, Measurement, of_run, run_folders
from indelible.embedding import EMBEDDINGS
from indelible.train.run_folder import Run

UNMARKED = "Unmarked model"
_APP_TITLES = {
    (True, True): "APP with c-BN",
    (True, False): "APP only (no c-BN)",
    (False, True): "c-BN only (eps 0)",
    (False, False): "Extra exposure only (eps 0, no c-BN)",
}
"""APP's title by what it does: whether it perturbs weights, whether it has clean-sample BatchNorm."""


@dataclass(frozen=True)
class ModelStages:
    """One model and what was done to it: a row of the before/after table."""

    label: str  # what it is called, different for each model
    method: str  # the method in words, shared by models that differ in seed only
    marked: bool  # whether it carries a watermark
    before: Measurement | None  # the model as its owner made it; None if only the attacked model is at hand
    after: tuple[Measurement, ...] = ()  # one measurement for each attack

    @property
    def stages(self) -> tuple[Measurement, ...]:
        """All stages in order of time."""
        return self.after if self.before is None else (self.before, *self.after)

    @property
    def by_attack(self) -> Mapping[str, Measurement]:
        """The stage after each attack, the paper's first; of several runs of one attack the last."""
        found = {str(stage.attack): stage for stage in self.after}
        first = [name for name in PAPER_ATTACKS if name in found]
        return {name: found[name] for name in dict.fromkeys([*first, *found])}

    @property
    def avg_drop(self) -> float | None:
        """The mean drop of WSR over those of the paper's attacks that were run; None when none was."""
        kept = [stage.wsr for name, stage in self.by_attack.items() if name in PAPER_ATTACKS]
        return average_drop(None if self.before is None else self.before.wsr, kept)

    def to_json(self) -> dict[str, Any]:
        """Return rates and verdicts of all stages as plain JSON values."""
        kind = "" if self.before is None else self.before.mark
        after = {name: _rates(stage) for name, stage in self.by_attack.items()}
        return {"label": self.label, "kind": kind, **_rates(self.before), "avg_drop": self.avg_drop, "after": after}


def _rates(stage: Measurement | None) -> dict[str, Any]:
    return {name: getattr(stage, name, None) for name in ("ba", "wsr", "owned", "p_value")}


def average_drop(before: float | None, after: Sequence[float | None]) -> float | None:
    """Return the mean of ``before`` minus each of ``after``; what was not measured does not count."""
    measured = [rate for rate in after if rate is not None]
    if before is None or not measured:
        return None
    return before - sum(measured) / len(measured)


def run_of(stage: Measurement) -> Run:
    """Return the run that a stage was read from."""
    if stage.run is None:
        raise ValueError("the measurement was not read from a run")
    return stage.run


def collect(paths: Sequence[str | Path]) -> list[ModelStages]:
    """Read runs and put attacks under the models they were made on.

    A model whose attack is named comes along even if it is not named itself: without it there is no "before".
    """
    runs = {folder.resolve(): Run.load(folder) for folder in run_folders(paths)}
    attacks = [run for run in runs.values() if run.record.verb == "attack"]
    for run in attacks:
        if run.parent is not None and run.parent.resolve() not in runs and Run.finished(run.parent):
            runs[run.parent.resolve()] = Run.load(run.parent)
    titles = attack_titles([run.record for run in attacks])
    after: dict[Path, list[Measurement]] = {}
    alone = []
    for run, title in zip(attacks, titles, strict=True):
        if run.parent is not None and run.parent.resolve() in runs:
            after.setdefault(run.parent.resolve(), []).append(of_run(run, title))
        else:
            name = f"{run.folder.name} (model before the attack not available)"
            alone.append(ModelStages(name, name, True, None, (of_run(run, title),)))
    found = []
    for place, run in runs.items():
        if run.record.verb != "attack":
            title, stages = method_title(run.record), after.get(place, [])
            # Attacks of the same settings on one model need columns of their own.
            columns = _distinct([str(stage.column) for stage in stages], [run_of(stage) for stage in stages])
            made = tuple(replace(stage, column=column) for stage, column in zip(stages, columns, strict=True))
            found.append(ModelStages(title, title, carries_mark(run.record), of_run(run), made))
    models = sorted([*found, *alone], key=_rank)
    labels = _distinct([model.label for model in models], [run_of(model.stages[0]) for model in models])
    return [replace(model, label=label) for model, label in zip(models, labels, strict=True)]


def _rank(model: ModelStages) -> tuple[int, str, int]:
    """Plain methods, then their controls, then APP, then what carries no mark: the order in which one compares."""
    first = run_of(model.stages[0]).record
    place = 3 if not model.marked else 0 if first.method != "app" else 2 if model.method == "APP with c-BN" else 1
    return place, model.method, first.seed


def _distinct(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Tell shared names apart by seed, by kind of mark, else by folder, whichever is enough."""
    found = list(names)
    tellers: list[Callable[[Run], str]] = [
        lambda run: f"seed {run.record.seed}",
        lambda run: str(run.record.inputs.get("kind", "")),
        lambda run: run.folder.name,
        lambda run: str(run.folder),
    ]
    for tell in tellers:
        for name in {name for name in found if found.count(name) > 1}:
            at = [number for number, known in enumerate(found) if known == name]
            if len({tell(runs[number]) for number in at}) > 1:
                for number in at:
                    found[number] = f"{name}, {tell(runs[number])}"
    return found


def own_settings(record: Record) -> Mapping[str, Any]:
    """Return the settings of the method itself, apart from those of the training."""
    found = record.settings.get("method")
    return found if isinstance(found, Mapping) else {}


def is_marked(record: Record) -> bool:
    """Tell whether the run is one of an embedding method or an attack, not of plain training."""
    return record.verb != "train" and record.method != "none"


def carries_mark(record: Record) -> bool:
    """Tell whether the run put a watermark into its model; Vanilla with no share of marked images puts none."""
    return is_marked(record) and not (record.method == "vanilla" and own_settings(record).get("fraction") == 0)


def method_title(record: Record) -> str:
    """Name an embedding run's method in words."""
    if not carries_mark(record):
        return UNMARKED
    own = own_settings(record)
    if record.method == "app":
        return _APP_TITLES[own.get("eps", 1) != 0, bool(own.get("clean_bn", True))]
    return EMBEDDINGS[record.method].title if record.method in EMBEDDINGS else record.method.rpartition(":")[2]


def short_title(method: str) -> str:
    """Write an attack's name for the head of a column: FT, or the class of ``package.module:Class``."""
    return method.rpartition(":")[2] if ":" in method else method.upper()


def attack_title(method: str) -> str:
    """Name an attack in words, with its short name: "fine-tuning (FT)"."""
    if method not in ATTACKS:
        return short_title(method)
    title: str = ATTACKS[method].title
    return f"{title[:1].lower()}{title[1:]} ({method.upper()})"


def attack_titles(records: Sequence[Record]) -> list[str]:
    """Give each attack run a short title; those of one method with other settings are told apart by these."""
    made = []
    for record in records:
        own = own_settings(record)
        alike = [own_settings(other) for other in records if other.method == record.method]
        differing = [
            f"{name} {own.get(name)}"
            for name in dict.fromkeys(name for other in alike for name in other)
            if len({canonical_json(other.get(name)) for other in alike}) > 1
        ]
        short = short_title(record.method)
        made.append(f"{short} ({', '.join(differing)})" if differing else short)
    return made
