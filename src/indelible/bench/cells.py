"""Cells: the units of work of a preset, each named by a digest of all that decides its result.

A *model cell* is an embedding; an *attack cell* is one attack on the model of a model cell. The digest is a SHA-256
over the resolved settings (defaults included, so that a changed default is a changed cell), the digests of the images
that go in, and the format version below. Labels of a preset are not part of it: APP at its default epsilon is trained
once, whether a main table or an ablation asks for it. How often a run is looked at or saved is not part of it either.
"""

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Any, Literal

from indelible.attacks import ATTACKS
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.files import canonical_json
from indelible.base.records import JsonFields
from indelible.bench.preset import BenchPreset, Variant
from indelible.bench.reported import reported
from indelible.data.catalog import load
from indelible.embedding import EMBEDDINGS
from indelible.keys.key import SCHEMES
from indelible.keys.marks import MARKS
from indelible.train.settings import SCALES, TrainSettings

FORMAT = 1
_SPARED = {"evaluate_every", "checkpoint_seconds"}
_KEY_DEFAULTS = {
    "scheme": "derived", "target": None, "labels": None, "marks": None, "count": None, "size": 1.0, "transparency": 0.0,
    "strength": 0.1, "source": None, "source_class": None,
}  # fmt: skip
# Settings that are gone and that digests still count: of the training, and of CW.
_GONE, _GONE_OF_CW = {"sync_batchnorm": False}, {"together": 1}
_EARLY = "ft"
_MARKS = 16  # of a codebook, from four classes up
Inputs = Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class BenchCell(JsonFields):
    """One unit of work."""

    digest: str  # hexadecimal name
    verb: Literal["embed", "attack"]  # `"embed"` or `"attack"`
    settings: Mapping[str, Any]  # all that decides the result, as JSON values
    needs: str | None = None  # digest of the model cell that an attack needs
    dataset: str  # name of the data set
    architecture: str  # name of the network
    kind: str  # label of the kind of mark
    method: str  # label of the embedding method
    attack: str | None = None  # label of the attack; None for a model
    seed: int = 0  # the seed
    # what its preset says of it: the preset's name, title and labels of attacks; the `ba` and `wsr` of the paper, as
    # fractions; the command that repeats the cell
    preset: str = ""
    title: str = ""
    attacks: Sequence[str] = ()
    reported: Mapping[str, float | None] | None = None
    command: str = ""

    @property
    def name(self) -> str:
        """A name for people, one for each cell of a preset: ``content/app/ft/0``."""
        return "/".join((self.architecture, self.kind, self.method, self.attack or "before", str(self.seed)))

    def built(self) -> Any:
        """Return the embedding method or the attack with its settings."""
        registry, name = (ATTACKS, "attack") if self.verb == "attack" else (EMBEDDINGS, "method")
        return registry[self.settings[name]].build.of(self.settings[f"{name}_settings"])


def data_digests(preset: BenchPreset) -> Inputs:
    """Return a digest for each data set that a preset uses; None for one that is not there."""
    sources = {str(variant.settings["source"]) for variant in preset.kinds if variant.settings.get("source")}
    return {name: _digest_of(name) for name in sorted({preset.data, *sources})}


@cache
def _digest_of(name: str) -> str | None:
    try:
        train, test = load(name)
    except UnknownNameError:
        raise
    except InputError:
        return None
    return _sha256([train.digest(), test.digest()])


def plan_cells(preset: BenchPreset, inputs: Inputs) -> list[BenchCell]:
    """Return all cells of a preset in the order in which they should be done when their turn comes.

    Kind by kind: fine-tuning as soon as its model is there, then the models, then the other attacks.
    """
    cells: dict[str, BenchCell] = {}
    for seed, architecture, kind in product(preset.seeds, preset.architectures, preset.kinds):
        group: list[BenchCell] = []
        for method in preset.methods:
            if kind.takes(seed) and method.takes(seed):
                model = _model_cell(preset, inputs, seed, architecture, kind, method)
                made = [one for one in preset.attacks if method.attacks is None or one.label in method.attacks]
                group += [model, *(_attack_cell(preset, model, attack) for attack in made)]
        # Stable: within a rank the preset's own order of methods and attacks stays.
        for cell in sorted(group, key=_rank):
            cells.setdefault(cell.name, _described(preset, cell))
    return list(cells.values())


def _described(preset: BenchPreset, cell: BenchCell) -> BenchCell:
    known = None if preset.reported is None else reported(preset.reported, cell.kind, cell.method, cell.attack)
    command = f"indelible bench run {shlex.quote(preset.name)} --only {shlex.quote(cell.name)}"
    return replace(cell, preset=preset.name, reported=known, command=command, **preset.described)


def select(cells: Sequence[BenchCell], pattern: str | None) -> list[BenchCell]:
    """Return the cells whose names match a pattern such as ``*/content/app/*``, and the models that they need."""
    if pattern is None:
        return list(cells)
    chosen = {cell.digest for cell in cells if fnmatchcase(cell.name, pattern)}
    if not chosen:
        raise InputError(f"no cell matches {pattern!r}. Their names look like {cells[0].name!r}.")
    wanted = chosen | {cell.needs for cell in cells if cell.digest in chosen}
    return [cell for cell in cells if cell.digest in wanted]


def _rank(cell: BenchCell) -> int:
    if cell.verb == "embed":
        return 1
    return 0 if cell.settings["attack"] == _EARLY else 2


def _model_cell(
    preset: BenchPreset, inputs: Inputs, seed: int, architecture: str, kind: Variant, method: Variant
) -> BenchCell:  # fmt: skip
    key = _key_settings(kind)
    base = SCALES[preset.train_scale].settings.to_json()
    settings: dict[str, Any] = {
        "data": preset.data, "attacker": preset.attacker, "architecture": architecture, "key": key,
        "method": method.name, "method_settings": _resolved(EMBEDDINGS, method, preset.train_scale, key),
        "train": TrainSettings.from_json({**base, **preset.train, **method.train}).to_json(), "seed": seed,
    }  # fmt: skip
    source = key["source"]
    deciding = {
        **settings,
        "data": inputs[preset.data] or preset.data,
        "key": {**key, "source": None if source is None else inputs[source] or source},
        "method_settings": {**settings["method_settings"], **(_GONE_OF_CW if method.name == "cw" else {})},
        "train": {name: value for name, value in {**settings["train"], **_GONE}.items() if name not in _SPARED},
    }
    return BenchCell(
        digest=_sha256({"format": FORMAT, "verb": "embed", **deciding}), verb="embed", settings=settings,
        dataset=preset.data, architecture=architecture, kind=kind.label, method=method.label, seed=seed,
    )  # fmt: skip


def _attack_cell(preset: BenchPreset, model: BenchCell, attack: Variant) -> BenchCell:
    rest = dict(attack.settings)
    scale = rest.pop("scale", "cpu")
    resolved = _resolved(ATTACKS, replace(attack, settings=rest), scale)
    settings: dict[str, Any] = {"attack": attack.name, "attack_settings": resolved}
    settings |= {"curve_images": preset.curve_images, "seed": model.seed}
    # Format 1 calls the protocol "recipe": finished cells keep their digests.
    old_names = {{"protocol": "recipe"}.get(name, name): value for name, value in resolved.items()}
    deciding = {"format": FORMAT, "verb": "attack", "model": model.digest, **settings, "attack_settings": old_names}
    return replace(
        model, digest=_sha256(deciding), verb="attack", settings=settings, needs=model.digest, attack=attack.label
    )


def _resolved(registry: Any, variant: Variant, scale: str, key: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all settings of a method or attack, defaults included; unknown ones and wrong types are refused."""
    build = registry[variant.name].build
    marks = [key["marks"] or _MARKS] if key is not None and key["labels"] == "codebook" else []
    resolved: dict[str, Any] = build.of({**build.defaults(scale, *marks), **variant.settings}).to_json()
    return resolved


def _key_settings(kind: Variant) -> dict[str, Any]:
    if kind.name not in MARKS:
        raise UnknownNameError("kind of mark", kind.name, MARKS)
    for name in kind.settings:
        if name not in _KEY_DEFAULTS:
            raise UnknownNameError("setting of a key", name, _KEY_DEFAULTS)
    settings: dict[str, Any] = {"kind": kind.name, **_KEY_DEFAULTS, **kind.settings}
    if settings["labels"] is None:
        single = settings["target"] is not None or settings["scheme"] == "paper"
        settings["labels"] = "fixed" if single else "codebook"
    if settings["labels"] != "codebook":
        del settings["marks"]  # as before there were codebooks: cells of other keys keep their digests
    if settings["scheme"] not in SCHEMES:
        raise UnknownNameError("key scheme", settings["scheme"], SCHEMES)
    return settings


def _sha256(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()
