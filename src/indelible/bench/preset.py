"""A preset: one table or figure as a TOML file, from which every cell follows.

| key | what |
|---|---|
| ``title`` | what it reproduces |
| ``data``, ``attacker``, ``architectures``, ``seeds`` | the grid's outer axes; ``attacker`` is the attacker's share |
| ``reported`` | table of the paper's numbers (:mod:`indelible.bench.reported`), if there is one |
| ``curve_images`` | test images that the models of a curve are measured on; by default all |
| ``[key]`` | settings shared by all keys |
| ``[kinds.LABEL]`` | one kind of mark: ``kind`` (by default the label) and settings of its key |
| ``[train]`` | ``preset`` (``paper`` or ``cpu``) and changes to its training settings |
| ``[method]`` | settings shared by all methods |
| ``[methods.LABEL]`` | one row: ``method`` (by default the label), its settings, changes to the training as ``train`` |
| ``[attack]`` | settings shared by all attacks: ``recipe``, ``preset`` |
| ``[attacks.LABEL]`` | one column: ``attack`` (by default the label) and its settings |

A method or attack is a registered name or ``package.module:Class``. The first comment of a file is the command that
runs it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from indelible.base.checks import check_settings
from indelible.base.errors import InputError, UnknownNameError

__all__ = ["Preset", "Variant", "load_preset", "preset_names"]

_TABLES = {"key", "kinds", "train", "method", "methods", "attack", "attacks"}
_SUFFIX = ".toml"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One entry of an axis.

    Attributes:
        label: What the preset calls it.
        name: The registered method, attack or kind.
        settings: Its settings.
        train: Changes to the training settings.
    """

    label: str
    name: str
    settings: Mapping[str, Any]
    train: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A grid of cells; the table in the module's header explains each field."""

    name: str
    title: str
    command: str
    data: str
    architectures: tuple[str, ...]
    kinds: tuple[Variant, ...]
    methods: tuple[Variant, ...]
    attacks: tuple[Variant, ...]
    seeds: tuple[int, ...] = (0,)
    attacker: float = 0.2
    reported: str | None = None
    curve_images: int | None = None
    train_preset: str = "paper"
    train: Mapping[str, Any]

    def __post_init__(self) -> None:
        for what in ("architectures", "kinds", "methods", "seeds"):
            if not getattr(self, what):
                raise InputError(f"the preset {self.name!r} names no {what}. Give at least one.")


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    return sorted(
        entry.name.removesuffix(_SUFFIX) for entry in _shipped().iterdir() if entry.name.endswith(_SUFFIX)
    )  # fmt: skip


def load_preset(name: str | Path) -> Preset:
    """Read a preset: one of the package by its name, or a TOML file by its path."""
    path = Path(name)
    if path.suffix == _SUFFIX:
        if not path.is_file():
            raise InputError(f"there is no preset file {path}. See `indelible bench list`.")
        text = path.read_text(encoding="utf-8")
    elif str(name) in preset_names():
        text = (_shipped() / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    else:
        raise UnknownNameError("preset", str(name), preset_names())
    return read_preset(str(name), text)


def read_preset(name: str, text: str) -> Preset:
    """Make a preset of the text of a TOML file."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the preset {name!r} is not TOML: {error}.") from error
    tables = {table: found.pop(table, {}) for table in _TABLES}
    first = text.split("\n", 1)[0]
    command = first.lstrip("# ").strip() if first.startswith("#") else f"indelible bench run {name}"
    train = dict(tables["train"])
    fields = {
        **found, "name": name, "command": command,
        "kinds": _variants(tables["kinds"], "kind", tables["key"]),
        "methods": _variants(tables["methods"], "method", tables["method"]),
        "attacks": _variants(tables["attacks"], "attack", tables["attack"]),
        "train_preset": train.pop("preset", "paper"), "train": train,
    }  # fmt: skip
    for axis in ("architectures", "seeds"):
        if isinstance(fields.get(axis), list):
            fields[axis] = tuple(fields[axis])
    check_settings(Preset, fields, f"key of the preset {name!r}")
    missing = {"title", "data", "architectures"} - fields.keys()
    if missing:
        raise InputError(f"the preset {name!r} lacks {', '.join(sorted(missing))}.")
    return Preset(**fields)


def _variants(table: Mapping[str, Any], what: str, shared: Mapping[str, Any]) -> tuple[Variant, ...]:
    variants = []
    for label, given in table.items():
        if not isinstance(given, Mapping):
            raise InputError(f"[{what}s.{label}] must be a table, but is {given!r}.")
        settings = {**shared, **given}
        name, train = settings.pop(what, label), settings.pop("train", {})
        variants.append(Variant(label=label, name=name, settings=settings, train=train))
    return tuple(variants)


def _shipped() -> Any:
    return resources.files("indelible.bench") / "presets"
