"""A run on disk: one folder that holds a model and everything needed to continue from it, or to check it.

docs/architecture.md lists its files. ``run.json`` is the whole record: settings, metrics, verdict, curve and history.
It is written last, so a folder without it is a run under way. An attacked model's folder holds no secret.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from torch import nn

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_json, write_json, write_tensors
from indelible.base.records import Record, plain
from indelible.base.weights import read_weights
from indelible.data.augment import Normalization
from indelible.data.catalog import load
from indelible.data.images import Data, Shape
from indelible.data.splits import Split
from indelible.keys.key import Key
from indelible.models import build_model
from indelible.nn.layers import check_finite
from indelible.train.history import HISTORY, is_row, read_history
from indelible.train.loop import leftovers

_FORMAT = 2
RUN_FILE, _MODEL, _KEY, _SPLIT = "run.json", "model.safetensors", "key", "split.safetensors"
Json = Mapping[str, Any]
_WHOLE: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "verdict": ("a verdict", lambda value: isinstance(value, dict)),
    "curve": ("the curve of an attack", lambda value: "name" in value and isinstance(value.get("rows"), list)),
    "transforms": ("a list of rates", lambda value: isinstance(value, list)),
    "history": ("a list of rows", lambda value: isinstance(value, list) and all(map(is_row, value))),
    "cell": ("a cell", lambda value: isinstance(value, dict)),
}
"""Parts of ``run.json`` that a run may have: in words, and what they must be."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """How to build the network again."""

    name: str  # a registered name, or ``package.module:function``
    classes: int
    shape: Shape

    def build(self, seed: int | None = None) -> nn.Module:
        """Return a fresh network."""
        return build_model(self.name, classes=self.classes, shape=self.shape, seed=seed)


@dataclass(frozen=True)
class Run:
    """A finished run: what its ``run.json`` says."""

    folder: Path
    record: Record  # what was run, and its results
    architecture: Architecture
    data: str  # name or path of its data set
    parent: Path | None = None  # the run whose model was attacked, if this is an attack
    _: KW_ONLY
    verdict: Json | None = field(default=None, repr=False)  # the last verification, as JSON values
    # BA and WSR at every strength that an attack could have chosen: `name` of what varies, `chosen`, `images`, `rows`
    curve: Json | None = field(default=None, repr=False)
    # BA and WSR under every transform, of a pre-processing attack
    transforms: Sequence[Json] | None = field(default=None, repr=False)
    history: Sequence[Json] = field(default=(), repr=False)  # one row per epoch
    cell: Json | None = field(default=None, repr=False)  # what a benchmark says of it, if it is one of its cells

    @staticmethod
    def finished(folder: str | Path) -> bool:
        """Tell whether ``folder`` holds a finished run."""
        return (Path(folder) / RUN_FILE).is_file()

    @classmethod
    def save(
        cls, folder: str | Path, *, model: nn.Module, record: Record, architecture: Architecture, data: str,
        split: Split, key: Key | None = None, parent: str | Path | None = None,
        verdict: Json | Callable[["Run"], Json] | None = None, **more: Any,
    ) -> Self:  # fmt: skip
        """Write a finished run and remove what it kept while running.

        ``verdict`` may be a function that verifies the run, called when all but ``run.json`` is written; ``more`` are
        further fields of a run.
        """
        place = Path(folder)
        write_tensors(place / _MODEL, model.state_dict())
        split.save(place / _SPLIT)
        if key is not None:
            key.save(place / _KEY)
        run = cls(place, record, architecture, data, None if parent is None else Path(parent), **more)
        run.keep_verdict(verdict(run) if callable(verdict) else verdict)
        for path in [*leftovers(place), place / HISTORY]:
            path.unlink(missing_ok=True)
        return cls.load(place)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a run.

        Raises:
            InputError: There is no finished run.
            DamagedFileError: It is not one that this version reads.
        """
        place = Path(folder)
        if not place.is_dir():
            raise InputError(f"there is no run {place}. Make one with `indelible embed --out {place}`.")
        if not cls.finished(place):
            hint = "It was interrupted: run the same command again."
            if not leftovers(place):
                hint = "Name the folder that `indelible embed` or `indelible attack` was given with --out."
            raise InputError(f"{place} holds no finished run. {hint}")
        return cls.of(read_json(place / RUN_FILE), place)

    @classmethod
    def of(cls, found: Any, place: Path) -> Self:
        """Return the run that ``run.json`` of the folder ``place`` describes with these JSON values."""
        try:
            if found["format"] != _FORMAT:
                known = f"this version reads {_FORMAT}"
                raise DamagedFileError(f"{place / RUN_FILE} has format {found['format']}, {known}.")
            for name, (words, whole) in _WHOLE.items():
                if found[name] is not None and not whole(found[name]):
                    raise DamagedFileError(f"{place / RUN_FILE}: {name!r} is not {words}. Restore it from a copy.")
            network = found["architecture"]
            channels, height, width = map(int, network["shape"])
            architecture = Architecture(
                name=network["name"], classes=int(network["classes"]), shape=(channels, height, width)
            )
            record = Record.from_json(found["record"])
            parent = None if found["parent"] is None else Path(os.path.normpath(place / found["parent"]))
            return cls(
                place, record, architecture, str(found["data"]), parent, **{name: found[name] for name in _WHOLE}
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DamagedFileError(f"{place / RUN_FILE} is not a run ({error!r}). Restore it from a copy.") from error

    def keep_verdict(self, verdict: Json | None) -> Self:
        """Write ``run.json`` with this verdict and return the run that has it."""
        judged = replace(self, verdict=verdict)
        document = {one.name: getattr(judged, one.name) for one in fields(judged) if one.name != "folder"}
        above = None if self.parent is None else Path(os.path.relpath(self.parent, self.folder)).as_posix()
        write_json(self.folder / RUN_FILE, plain({"format": _FORMAT, **document, "parent": above}))
        return judged

    def model(self) -> nn.Module:
        """Build the network and load its weights, in evaluation mode."""
        return load_weights(self.architecture.build(), self.folder / _MODEL).eval()

    def key(self) -> Key:
        """Return the owner's key: this run's, or that of the run it attacks."""
        if (self.folder / _KEY).is_dir():
            return Key.load(self.folder / _KEY)
        if self.parent is not None:
            return Run.load(self.parent).key()
        raise InputError(
            f"{self.folder} has no key, nor has a run it was made from. `indelible verify` takes --key FOLDER."
        )

    def normalize(self) -> Normalization | None:
        """Return what the model's input is normalised by."""
        settings = self.record.settings
        found = settings.get("train", settings).get("normalize")
        return None if found is None else (tuple(found[0]), tuple(found[1]))

    def split(self) -> Split:
        """Return who has which images."""
        return Split.load(self.folder / _SPLIT)

    def images(self) -> tuple[Data, Data, Data]:
        """Return the owner's, the attacker's and the test images."""
        train, test = load(self.data)
        split = self.split()
        if split.size != len(train):
            raise InputError(
                f"the split of {self.folder} is of {split.size} images, but {self.data!r} has {len(train)} now."
            )
        return train.subset(split.owner), train.subset(split.attacker), test


def history_of(folder: Path) -> Sequence[Json]:
    """Return the history of a run, under way or finished; empty when there is none."""
    # In this order: a run that ends in between has it in ``run.json``.
    return read_history(folder) or (Run.load(folder).history if Run.finished(folder) else ())


def load_weights(model: nn.Module, path: Path) -> nn.Module:
    """Load a file of weights (safetensors, .pt or .pth) into ``model``; refuse one that does not fit or holds NaN."""
    weights = read_weights(path)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        cause = " ".join(str(error).split())[:200]
        raise DamagedFileError(
            f"{path} does not fit the network {type(model).__name__}: {cause}. Name the architecture that it was saved "
            "from."
        ) from error
    check_finite(model, str(path))
    return model
