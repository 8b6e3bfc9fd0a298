"""A run on disk: one folder that holds a model and everything needed to continue from it, or to check it.

docs/architecture.md lists its files. ``run.json`` is written last, so a folder without it is a run under way. An
attacked model's folder holds no secret.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from indelible.train.history import read_history
from indelible.train.loop import leftovers

_FORMAT = 1
_RUN, _MODEL, _KEY, _SPLIT = "run.json", "model.safetensors", "key", "split.safetensors"
_VERDICT, _CURVE = "verdict.json", "curve.json"


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
    """A finished run."""

    folder: Path
    record: Record  # what was run, and its results
    architecture: Architecture
    data: str  # name or path of its data set
    parent: Path | None = None  # the run whose model was attacked, if this is an attack

    @staticmethod
    def finished(folder: str | Path) -> bool:
        """Tell whether ``folder`` holds a finished run."""
        return (Path(folder) / _RUN).is_file()

    @classmethod
    def save(
        cls, folder: str | Path, *, model: nn.Module, record: Record, architecture: Architecture, data: str,
        split: Split, key: Key | None = None, parent: str | Path | None = None,
    ) -> Self:  # fmt: skip
        """Write a finished run and remove what it kept while running."""
        place = Path(folder)
        write_tensors(place / _MODEL, model.state_dict())
        split.save(place / _SPLIT)
        if key is not None:
            key.save(place / _KEY)
        above = None if parent is None else Path(os.path.relpath(parent, place)).as_posix()
        document = {"format": _FORMAT, "record": record, "architecture": architecture, "data": data, "parent": above}
        write_json(place / _RUN, plain(document))
        for path in leftovers(place):
            path.unlink()
        return cls(place, record, architecture, data, None if parent is None else Path(parent))

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
        found = read_json(place / _RUN)
        try:
            if found["format"] != _FORMAT:
                raise DamagedFileError(f"{place / _RUN} has format {found['format']}, this version reads {_FORMAT}.")
            network = found["architecture"]
            channels, height, width = map(int, network["shape"])
            architecture = Architecture(
                name=network["name"], classes=int(network["classes"]), shape=(channels, height, width)
            )
            record = Record.from_json(found["record"])
            parent = None if found["parent"] is None else Path(os.path.normpath(place / found["parent"]))
            return cls(place, record, architecture, str(found["data"]), parent)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DamagedFileError(f"{place / _RUN} is not a run ({error!r}). Restore it from a copy.") from error

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

    def history(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the run's history."""
        return read_history(self.folder)

    def verdict(self) -> Mapping[str, Any] | None:
        """Return the last verdict as JSON values; None when there is none."""
        return self._stored(_VERDICT, {}, "a verdict. Delete it, and verify again.")

    def curve(self) -> Mapping[str, Any] | None:
        """Return the measured curve of an attack (``name``, ``chosen``, ``rows``); None when there is none."""
        wanted = {"rows": list, "name": object}
        return self._stored(_CURVE, wanted, "the curve of an attack. Delete it, or restore it from a copy.")

    def _stored(self, name: str, wanted: Mapping[str, type], what: str) -> Mapping[str, Any] | None:
        """Read a file that a run may have: a mapping with the ``wanted`` entries of these types."""
        path = self.folder / name
        if not path.exists():
            return None
        found = read_json(path)
        if not isinstance(found, Mapping) or not all(
            key in found and isinstance(found[key], kind) for key, kind in wanted.items()
        ):
            raise DamagedFileError(f"{path} is not {what}")
        return found

    def keep_verdict(self, verdict: Mapping[str, Any]) -> None:
        """Write a verdict beside the model."""
        write_json(self.folder / _VERDICT, verdict)

    @staticmethod
    def keep_curve(
        folder: str | Path, name: str, rows: Sequence[Mapping[str, Any]], *, images: int | None = None
    ) -> None:
        """Write a measured curve into a run's folder, before the run is saved: models of a curve are not kept.

        ``name`` is what varies along the curve; ``images`` is how many test images each row was measured by.
        """
        chosen = next((row["value"] for row in rows if row["chosen"]), None)
        write_json(Path(folder) / _CURVE, {"name": name, "chosen": chosen, "images": images, "rows": list(rows)})


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
