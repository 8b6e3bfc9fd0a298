"""From folders to what a report shows: models, each with the attacks that were made on it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.report.names import attack_titles, carries_mark, method_title
from indelible.train.run import Run

__all__ = ["Entry", "Stage", "collect", "expand", "stage_of"]

Paths = Sequence[str | Path]
_RUN_FILE = "run.json"


@dataclass(frozen=True)
class Stage:
    """A model at one moment: as its owner made it, or after one attack.

    Attributes:
        run: Its run.
        title: "Before attack", or the attack's short title.
        ba: Accuracy on clean test images, a fraction.
        wsr: Watermark success rate on test images, a fraction.
        wsr_embedded: The same on the samples that were embedded in training.
        verdict: The last verdict as JSON values, if there was one.
    """

    run: Run
    title: str
    ba: float | None
    wsr: float | None
    wsr_embedded: float | None
    verdict: Mapping[str, Any] | None

    @property
    def p_value(self) -> float | None:
        """The verdict's p-value."""
        return None if self.verdict is None else _number(self.verdict, "p_value", self.run.folder)

    @property
    def owned(self) -> bool | None:
        """Whether the verdict says that the model is the owner's; None without a verdict."""
        return None if self.verdict is None else bool(self.verdict.get("owned"))


@dataclass(frozen=True)
class Entry:
    """One model and what was done to it: a row of the table.

    Attributes:
        label: What it is called, different for each entry.
        method: The method in words, shared by entries that differ in seed only.
        marked: Whether it carries a watermark.
        before: The model as its owner made it; None if only the attacked model is at hand.
        after: One stage for each attack.
    """

    label: str
    method: str
    marked: bool
    before: Stage | None
    after: tuple[Stage, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in order of time."""
        return self.after if self.before is None else (self.before, *self.after)


def expand(paths: Paths) -> list[Path]:
    """Replace folders that contain runs by these runs, in the order of their names; each run comes once."""
    found: dict[Path, Path] = {}
    for given in paths:
        place = Path(given)
        inside = sorted(file.parent for file in place.rglob(_RUN_FILE)) if place.is_dir() else []
        if not inside:
            Run.load(place)  # says what is wrong with it
        for folder in inside:
            found.setdefault(folder.resolve(), folder)
    if not found:
        raise InputError("a report needs at least one run. Name its folder: indelible report runs/app")
    return list(found.values())


def stage_of(run: Run, title: str = "Before attack") -> Stage:
    """Read what is known of a run's model; a verdict has the last word over what was measured in training."""
    verdict, metrics = run.verdict(), run.record.metrics
    if verdict is not None and not isinstance(verdict, Mapping):
        raise DamagedFileError(f"the verdict in {run.folder} is not one. Verify again: indelible verify {run.folder}")

    def rate(name: str) -> float | None:
        known = None if verdict is None else _number(verdict, name, run.folder)
        return known if known is not None else _number(metrics, name, run.folder)

    return Stage(run, title, rate("ba"), rate("wsr"), rate("wsr_embedded"), verdict)


def _number(values: Mapping[str, Any], name: str, folder: Path) -> float | None:
    value = values.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise DamagedFileError(f"{name} in {folder} should be a number, but is {value!r}. Restore it from a copy.")
    return value


def collect(paths: Paths) -> list[Entry]:
    """Read runs and put attacks under the models they were made on.

    A model whose attack is named comes along even if it is not named itself: without it there is no "before".
    """
    runs = {folder.resolve(): Run.load(folder) for folder in expand(paths)}
    parents: dict[Path, Path] = {}
    for place, run in list(runs.items()):
        if run.record.verb == "attack" and run.parent is not None:
            parents[place] = run.parent.resolve()
            if parents[place] not in runs and Run.finished(run.parent):
                runs[parents[place]] = Run.load(run.parent)
    attacks = [place for place, run in runs.items() if run.record.verb == "attack"]
    titles = dict(zip(attacks, attack_titles([runs[place].record for place in attacks]), strict=True))
    entries = [
        _entry(run, [(runs[place], titles[place]) for place in attacks if parents.get(place) == origin])
        for origin, run in runs.items()
        if run.record.verb != "attack"
    ]
    entries += [_orphan(runs[place], titles[place]) for place in attacks if parents.get(place) not in runs]
    return _told_apart(sorted(entries, key=_rank))


def _entry(run: Run, attacks: Iterable[tuple[Run, str]]) -> Entry:
    title = method_title(run.record)
    after = _distinct_titles([stage_of(attack, name) for attack, name in attacks])
    return Entry(title, title, carries_mark(run.record), stage_of(run), after)


def _orphan(run: Run, title: str) -> Entry:
    name = f"{run.folder.name} (model before the attack not at hand)"
    return Entry(name, name, True, None, (stage_of(run, title),))


def _rank(entry: Entry) -> tuple[int, str, int]:
    """Plain methods, then their controls, then APP, then what carries no mark: the order in which one compares."""
    if not entry.marked:
        return 3, entry.method, _seed(entry)
    if entry.stages[0].run.record.method != "app":
        return 0, entry.method, _seed(entry)
    return (2 if entry.method == "APP with c-BN" else 1), entry.method, _seed(entry)


def _seed(entry: Entry) -> int:
    return entry.stages[0].run.record.seed


def _distinct_titles(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Tell apart attacks of the same settings on one model: by seed, else by folder."""
    titles = [stage.title for stage in stages]
    tellers: list[Callable[[Stage], str]] = [
        lambda stage: f"{stage.title}, seed {stage.run.record.seed}",
        lambda stage: f"{stage.title}, {stage.run.folder.name}",
    ]
    for tell in tellers:
        if len(set(titles)) == len(titles):
            break
        titles = [
            tell(stage) if titles.count(title) > 1 else title for stage, title in zip(stages, titles, strict=True)
        ]
    return tuple(replace(stage, title=title) for stage, title in zip(stages, titles, strict=True))


def _told_apart(entries: Sequence[Entry]) -> list[Entry]:
    """Give each entry its own label: by seed, by kind of mark, else by folder, whichever is enough."""
    tellers: list[Callable[[Entry], str]] = [
        lambda entry: f"seed {_seed(entry)}",
        lambda entry: str(entry.stages[0].run.record.inputs.get("kind", "")),
        lambda entry: entry.stages[0].run.folder.name,
        lambda entry: str(entry.stages[0].run.folder),
    ]
    labels = [entry.label for entry in entries]
    for tell in tellers:
        repeated = {label for label in labels if labels.count(label) > 1}
        if not repeated:
            break
        for label in sorted(repeated):
            at = [number for number, known in enumerate(labels) if known == label]
            if len({tell(entries[number]) for number in at}) > 1:
                for number in at:
                    labels[number] = f"{label}, {tell(entries[number])}"
    return [replace(entry, label=label) for entry, label in zip(entries, labels, strict=True)]
