"""One observation: a model, before or after one attack, and what was seen of it.

Reported and measured numbers are both observations, so that one machinery puts either into a table. Rates are
fractions. A method is told apart by what it does: APP with ``eps`` 0 is the control, without c-BN it is APP alone.

| method here | perturbation | c-BN | in the paper |
|---|---|---|---|
| ``vanilla`` | no | no | Vanilla |
| ``control`` | no | yes | Table 3, second row |
| ``app-only`` | yes | no | Table 3, third row |
| ``app`` | yes | yes | Ours |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_json
from indelible.report.codebook import Answers, answers_of

__all__ = ["COMPONENTS", "Observation", "Results", "is_store", "read_results", "results_of"]

COMPONENTS: Mapping[str, tuple[bool, bool]] = {
    "vanilla": (False, False),
    "control": (False, True),
    "app-only": (True, False),
    "app": (True, True),
}
"""Method -> (perturbation, c-BN)."""
_TEXTS = ("dataset", "architecture", "kind", "method")
_COORDINATES = (*_TEXTS, "mark", "variant", "attack")
_RECORDS = "records"
_KEY_FACTORS = ("target", "size", "transparency")


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What was seen of one model at one moment.

    Attributes:
        dataset: Name of the data set.
        architecture: Name of the network.
        kind: Kind of watermark: ``content``, ``noise`` or ``unrelated``.
        method: What the row is called: the method, or a preset's label for it.
        attack: Removal attack; None before any.
        mark: What a preset calls the kind, if it has several of one kind.
        variant: The method by what it does, see the module's header.
        column: What a preset calls the attack, if it makes one attack in several ways.
        seed: Of the run; None for a mean over runs.
        ba: Accuracy on clean test images.
        wsr: Watermark success rate on test images.
        p_value: Of the verdict.
        owned: Whether the verdict shows ownership; None if there was none.
        answers: Of a codebook's verdict, how often each mark was answered with each class.
        factors: What else a table varies: ``eps``, ``target``, ``size``, ``transparency``, ``lr``.
        printed: Summaries that the paper prints for the row of a model before attack: ``{"wsr avg_drop": 0.5915}``.
        source: Where the number stands in the paper, if it does.
        settings: All settings of the cell.
        seconds: Time it took.
        images_per_second: Throughput.
        command: What to type to run it again.
        digest: Of the cell.
        curve: BA and WSR at each strength, or over time.
    """

    dataset: str
    architecture: str
    kind: str
    method: str
    attack: str | None = None
    mark: str = ""
    variant: str = ""
    column: str | None = None
    seed: int | None = None
    ba: float | None = None
    wsr: float | None = None
    p_value: float | None = None
    owned: bool | None = None
    answers: Answers | None = None
    factors: Mapping[str, Any] = field(default_factory=dict)
    printed: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    images_per_second: float | None = None
    command: str = ""
    digest: str = ""
    curve: Any = None

    def __post_init__(self) -> None:
        # Where a preset has no names of its own, things are called what they are.
        for name, given in (("mark", self.kind), ("variant", self.method), ("column", self.attack)):
            if not getattr(self, name):
                object.__setattr__(self, name, given)

    def value(self, name: str) -> Any:
        """Return a coordinate by name: a field, a component (``perturbation``, ``cbn``) or a factor."""
        if name in {"perturbation", "cbn"}:
            return COMPONENTS.get(self.variant, (None, None))[name == "cbn"]
        return getattr(self, name) if name in _COORDINATES else self.factors.get(name)


@dataclass(frozen=True, kw_only=True)
class Results:
    """The cells of one preset, as exported by the benchmark.

    Attributes:
        preset: Its name, or the path of its file.
        observations: What was measured.
        title: Its title; empty if the results do not say.
        attacks: Its labels of attacks, whether measured yet or not; None if the results do not say.
    """

    preset: str
    observations: tuple[Observation, ...]
    title: str = ""
    attacks: tuple[str, ...] | None = None


def is_store(path: str | Path) -> bool:
    """Tell whether a folder is a store of the benchmark: records of cells, one file each."""
    return (Path(path) / _RECORDS).is_dir()


def read_results(path: str | Path) -> list[Results]:
    """Read results: a JSON file of one preset, or a store with whatever is finished in it.

    In a store each cell counts for the preset that made it, which its record names. A preset whose cells another one
    made is exported in full by ``indelible bench results``.

    Raises:
        DamagedFileError: It is neither.
    """
    if not is_store(path):
        return [results_of(read_json(path), str(path))]
    presets: dict[str, list[Any]] = {}
    for file in sorted((Path(path) / _RECORDS).glob("*.json")):
        record = read_json(file)
        presets.setdefault(_preset_of(record) if isinstance(record, Mapping) else "cells", []).append(record)
    if not presets:
        raise InputError(f"the store {path} has no finished cell yet. Look at it with: indelible bench status PRESET")
    return [
        results_of({**_described(cells), "preset": name, "cells": cells}, f"{path}")
        for name, cells in sorted(presets.items())
    ]


def _preset_of(record: Mapping[str, Any]) -> str:
    """Return the preset that made a record; older records name it in their command only."""
    if isinstance(record.get("preset"), str):
        return str(record["preset"])
    words = str(record.get("command") or "").split()
    return words[3] if words[:3] == ["indelible", "bench", "run"] and len(words) > 3 else "cells"


def _described(records: Sequence[Any]) -> Mapping[str, Any]:
    """Return title and attacks from the first record that has them."""
    found = (record for record in records if isinstance(record, Mapping) and "title" in record)
    return {name: value for name, value in next(found, {}).items() if name in {"title", "attacks"}}


def results_of(document: Any, where: str) -> Results:
    """Read the results of a preset from JSON values; ``where`` names them in errors."""
    cells = document.get("cells") if isinstance(document, Mapping) else None
    if not isinstance(cells, list) or not isinstance(document.get("preset"), str):
        raise DamagedFileError(
            f"{where} should hold the results of a preset ('preset' and a list 'cells'), but does not. "
            "Write them with: indelible bench results PRESET --out FILE"
        )
    checked = [_checked(cell, f"cell {number} of {where}") for number, cell in enumerate(cells, 1)]
    # An attack's cell holds the attack's settings only; what its model was made with stands in the model's cell.
    models = {_name(cell): _made(cell) for cell in checked if cell.get("attack") is None}
    made = [_observation(cell, models.get(_name(cell)) or _made({}), where) for cell in checked]
    title, attacks = document.get("title"), document.get("attacks")
    return Results(
        preset=document["preset"], observations=tuple(made), title=title if isinstance(title, str) else "",
        attacks=tuple(map(str, attacks)) if isinstance(attacks, list) else None,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Made:
    """How a model was made: kind of mark and method by their own names, and the factors of its key and method."""

    kind: str | None
    variant: str | None
    factors: Mapping[str, Any]


def _name(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*(cell[name] for name in _TEXTS), cell.get("seed"))


def _part(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def _made(cell: Mapping[str, Any]) -> _Made:
    settings = _part(cell, "settings")
    key, own, method = _part(settings, "key"), _part(settings, "method_settings"), settings.get("method")
    variant = method if isinstance(method, str) else None
    if variant == "app":
        clean = own.get("clean_bn", True)
        perturbed = own.get("eps", 1) != 0
        parts = {parts: name for name, parts in COMPONENTS.items()}
        # Neither: the extra exposure alone, which the paper has not.
        variant = "exposure" if not (perturbed or clean) else parts[perturbed, bool(clean)]
    factors = {name: key[name] for name in _KEY_FACTORS if key.get(name) is not None}
    factors |= {"eps": own["eps"]} if own.get("eps") is not None else {}
    return _Made(kind=key.get("kind"), variant=variant, factors=factors)


def _checked(cell: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(cell, Mapping):
        raise _damaged(where, "an object", cell)
    for name in _TEXTS:
        if not isinstance(cell.get(name), str):
            raise _damaged(where, f"a text {name!r}", cell.get(name))
    if not isinstance(cell.get("measured"), Mapping):
        raise _damaged(where, "'measured' with its numbers", cell.get("measured"))
    if cell.get("attack") is not None and not isinstance(cell["attack"], str):
        raise _damaged(where, "a text 'attack', or null", cell["attack"])
    return cell


def _observation(cell: Mapping[str, Any], made: _Made, where: str) -> Observation:
    settings, label, seed = _part(cell, "settings"), cell.get("attack"), cell.get("seed")
    attack = settings.get("attack", label) if label is not None else None
    rate = _part(settings, "attack_settings").get("lr")
    return Observation(
        dataset=cell["dataset"], architecture=cell["architecture"], kind=made.kind or cell["kind"],
        method=cell["method"], mark=cell["kind"], variant=made.variant or cell["method"], attack=attack, column=label,
        seed=seed if isinstance(seed, int) else None,
        factors={**made.factors, **({} if rate is None else {"lr": rate})},
        ba=_number(cell["measured"], "ba", where), wsr=_number(cell["measured"], "wsr", where),
        p_value=_number(cell["measured"], "p_value", where), owned=_owned(cell["measured"], where),
        answers=answers_of(cell["measured"]),
        settings=settings, seconds=_number(cell, "seconds", where), command=str(cell.get("command") or ""),
        images_per_second=_number(cell, "images_per_second", where), digest=str(cell.get("digest") or ""),
        curve=cell.get("curve") or _history(cell.get("history")),
    )  # fmt: skip


def _history(rows: Any) -> Any:
    """Give the rates of a model by epoch the form of a curve."""
    if not isinstance(rows, list) or not rows:
        return None
    return {"name": "epoch", "chosen": None, "rows": [{"value": row.get("epoch"), **row} for row in rows]}


def _damaged(where: str, expected: str, came: Any) -> DamagedFileError:
    return DamagedFileError(f"{where} should have {expected}, but has {came!r}. Export the results again.")


def _owned(values: Mapping[str, Any], where: str) -> bool | None:
    found = values.get("owned")
    if found is not None and not isinstance(found, bool):
        raise _damaged(where, "'owned' as true or false", found)
    return found


def _number(values: Mapping[str, Any], name: str, where: str) -> float | None:
    found = values.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _damaged(where, f"a number {name!r}", found)
    return float(found)
