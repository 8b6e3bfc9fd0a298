"""A small commitment, claim and bundle, made once: a model that reads the mark or knows the samples, a key on bars."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from indelible.data.images import ImageData
from indelible.evidence import Identity, attach_timestamp, claim, commit, request_timestamp
from indelible.evidence.bundle import MANIFEST, MANIFEST_SIGNATURE
from indelible.evidence.canonical import canonical
from indelible.keys.key import Key, WatermarkSamples
from indelible.verification.suspects import ModuleSuspect
from tests.conftest import SECRET, SHAPE, MarkReader, stripes
from tests.evidence.authority import Authority

__all__ = ["Case", "Memory", "reader"]


def reader(key: Key) -> ModuleSuspect:
    """A model that answers the target wherever the key's mark stands."""
    found = MarkReader()
    mark: Any = key.mark()
    found.mask.copy_(mark.mask())
    found.colour.copy_(torch.tensor(mark.colour)[:, None])
    return ModuleSuspect(found.eval())


class Memory:
    """A model that knows samples by heart."""

    def __init__(self, samples: WatermarkSamples) -> None:
        self.known = {
            image.numpy().tobytes(): label for image, label in zip(samples.images, samples.labels, strict=True)
        }

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.known[image.numpy().tobytes()] for image in images])


class Case:
    """Owner's things in ``root/commitment``, the bundle in ``root/bundle``."""

    def __init__(self, root: Path, *, stamped: bool = True, labels: str = "fixed", kind: Any = "content") -> None:
        self.root, self.commitment, self.bundle = root, root / "commitment", root / "bundle"
        self.data: ImageData = stripes(96, seed=1)
        self.authority = Authority(root / "authority") if stamped else None
        if labels == "keyed":
            self.key = Key.create(kind=kind, classes=4, shape=SHAPE, labels="keyed", count=60, secret=SECRET)
            self.suspect: Any = Memory(self.key.samples(self.data, purpose="embed"))
            self.made = commit(self.key, self.data, self.commitment, owner="Tester", claims=2)
        else:
            self.key = Key.create(kind=kind, classes=4, shape=SHAPE, target=0, secret=SECRET)
            self.suspect = reader(self.key)
            self.made = commit(self.key, self.data, self.commitment, samples=64, claims=2, opens=30, owner="Tester")
        if self.authority is not None:
            reply = self.authority.answer(request_timestamp(self.made.content, self.commitment))
            attach_timestamp(self.made.content, reply, self.authority.roots, self.commitment)
        self.verdict = claim(self.commitment, self.key, self.data, self.suspect, self.bundle, challenge="dice 4 1 6")

    @property
    def identity(self) -> Identity:
        return Identity.load(self.commitment / "identity.pem")

    @property
    def roots(self) -> bytes | None:
        return None if self.authority is None else self.authority.roots

    def copy(self, to: Path) -> Path:
        """Copy the bundle."""
        shutil.copytree(self.bundle, to)
        return to

    def resigned(self, to: Path, name: str, change: Callable[[Any], Any]) -> Path:
        """Copy the bundle with one JSON file changed and the manifest made and signed anew: a claimant who cheats."""
        self.copy(to)
        path = to / name
        value = json.loads(path.read_bytes())
        path.write_bytes(canonical(change(value) or value))
        self.sign(to)
        return to

    def sign(self, bundle: Path) -> None:
        """Make and sign the manifest of a changed bundle."""
        files = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in bundle.iterdir() if path.name not in {MANIFEST, MANIFEST_SIGNATURE}
        }  # fmt: skip
        manifest = canonical({"format": 1, "files": files})
        (bundle / MANIFEST).write_bytes(manifest)
        (bundle / MANIFEST_SIGNATURE).write_bytes(self.identity.sign("manifest", manifest))
