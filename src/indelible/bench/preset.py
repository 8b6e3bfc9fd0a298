"""A preset: one table or figure as a TOML file, from which every cell follows; docs/benchmark.md explains its keys."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from indelible.base.checks import check_settings
from indelible.base.errors import InputError, UnknownNameError

_SUFFIX = ".toml"
_SHIPPED = resources.files("indelible.bench") / "presets"
_PARTS = {"kind": ("seeds",), "method": ("seeds", "attacks")}  # of the preset's own, that an entry may name


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One entry of an axis."""

    label: str  # what the preset calls it
    name: str  # the registered method, attack or kind
    settings: Mapping[str, Any]  # its settings
    train: Mapping[str, Any]  # changes to the training settings
    seeds: tuple[int, ...] | None = None  # the seeds that it is done with; None for all of the preset
    # labels of the attacks that are made on a method; None for all of the preset
    attacks: tuple[str, ...] | None = None

    def takes(self, seed: int) -> bool:
        """Tell whether it is done with this seed."""
        return self.seeds is None or seed in self.seeds


@dataclass(frozen=True, kw_only=True)
class BenchPreset:
    """A grid of cells."""

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
    train_scale: str = "cpu"
    train: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """What records say of it: its title, and its labels of attacks."""
        return {"title": self.title, "attacks": [variant.label for variant in self.attacks]}

    def __post_init__(self) -> None:
        for what in ("architectures", "kinds", "methods", "seeds"):
            if not getattr(self, what):
                raise InputError(f"the preset {self.name!r} names no {what}. Give at least one.")
        known = {attack.label for attack in self.attacks}
        for variant in (*self.kinds, *self.methods):
            for seed in variant.seeds or ():
                if seed not in self.seeds:
                    raise UnknownNameError(f"seed of {variant.label!r}", str(seed), map(str, self.seeds))
            for label in variant.attacks or ():
                if label not in known:
                    raise UnknownNameError(f"attack on {variant.label!r}", label, known)


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _SHIPPED.iterdir() if entry.name.endswith(_SUFFIX))


def load_preset(name: str | Path) -> BenchPreset:
    """Read a preset: one of the package by its name, or a TOML file by its path."""
    path = Path(name)
    if path.suffix == _SUFFIX:
        if not path.is_file():
            raise InputError(f"there is no preset file {path}. See `indelible bench list`.")
        text = path.read_text(encoding="utf-8")
    elif str(name) in preset_names():
        text = (_SHIPPED / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    else:
        raise UnknownNameError("preset", str(name), preset_names())
    return read_preset(str(name), text)


def read_preset(name: str, text: str) -> BenchPreset:
    """Make a preset of the text of a TOML file."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the preset {name!r} is not TOML: {error}.") from error
    first, train = text.split("\n", 1)[0], dict(found.pop("train", {}))
    command = first.lstrip("# ").strip() if first.startswith("#") else f"indelible bench run {name}"
    variants = {
        f"{what}s": _variants(found.pop(f"{what}s", {}), what, found.pop(shared, {}))
        for what, shared in (("kind", "key"), ("method", "method"), ("attack", "attack"))
    }
    lists = {axis: tuple(value) for axis, value in found.items() if isinstance(value, list)}
    fields = {
        **found, **lists, **variants, "name": name, "command": command, "train_scale": train.pop("scale", "cpu"),
        "train": train,
    }  # fmt: skip
    check_settings(BenchPreset, fields, f"key of the preset {name!r}")
    missing = {"title", "data", "architectures"} - fields.keys()
    if missing:
        raise InputError(f"the preset {name!r} lacks {', '.join(sorted(missing))}.")
    return BenchPreset(**fields)


def _variants(table: Mapping[str, Any], what: str, shared: Mapping[str, Any]) -> tuple[Variant, ...]:
    variants = []
    for label, given in table.items():
        if not isinstance(given, Mapping):
            raise InputError(f"[{what}s.{label}] must be a table, got {given!r}.")
        settings = {**shared, **given}
        name, train = settings.pop(what, label), settings.pop("train", {})
        chosen = {part: settings.pop(part) for part in _PARTS.get(what, ()) if part in settings}
        for part, said in chosen.items():
            if not isinstance(said, list):
                raise InputError(
                    f"[{what}s.{label}] expected a list for {part}, got {said!r}. Write {part} = [{said!r}]."
                )
            chosen[part] = tuple(said)
        variants.append(Variant(label=label, name=name, settings=settings, train=train, **chosen))
    return tuple(variants)
