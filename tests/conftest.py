"""Fixtures: tiny data, tiny networks, one thread - so that tests are quick and repeatable."""

import random
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from torch import Tensor, nn

from indelible.base.progress import silenced
from indelible.data.images import ImageData
from indelible.keys.key import Key

SHAPE = (3, 32, 32)
SECRET = bytes(range(32))
DRAWS = random.Random()
Install = Callable[..., Path]

# The same examples in every run, however slow the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def _repeatable_secrets() -> Iterator[None]:
    """Draw secrets and signing keys from a seeded generator instead of the operating system's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("indelible.keys.derive.secrets", SimpleNamespace(token_bytes=DRAWS.randbytes))
        drawn = classmethod(lambda cls: cls.from_private_bytes(DRAWS.randbytes(32)))
        patch.setattr(Ed25519PrivateKey, "generate", drawn)
        yield


@pytest.fixture(autouse=True, scope="module")
def _seeded_module(_repeatable_secrets: None) -> None:
    """Seed what the fixtures of a module draw, whichever tests ran before."""
    DRAWS.seed("module")
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    DRAWS.seed("test")
    torch.manual_seed(0)
    with silenced():
        yield
    torch.set_num_threads(threads)


def stripes(count: int, classes: int = 4, *, seed: int = 0) -> ImageData:
    """Return images whose class is the height of a bright bar under noise: learnt in a few steps, flips or not."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    images = torch.randint(0, 90, (count, *SHAPE), generator=random, dtype=torch.uint8)
    height = SHAPE[1] // classes
    for index, label in enumerate(labels.tolist()):
        images[index, :, label * height : (label + 1) * height] += 130
    return ImageData(images, labels, tuple(f"bar {index}" for index in range(classes)), "stripes")


class TinyNet(nn.Module):
    """Two convolutions with BatchNorm and a linear layer."""

    def __init__(self, classes: int = 4, channels: int = 3, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(8 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


class MarkReader(nn.Module):
    """Answers class 0 where a content mark stands, the brightest bar elsewhere: a perfect watermark."""

    mask: Tensor
    colour: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.zeros(SHAPE[1:], dtype=torch.bool))
        self.register_buffer("colour", torch.zeros(3, 1))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        marked = ((images * 255).round()[:, :, self.mask] == self.colour).flatten(1).all(1)
        bars = images.mean((1, 3)).reshape(len(images), 4, 8).mean(2)
        return self.scale * torch.where(marked[:, None], torch.eye(4)[0], bars)


@pytest.fixture
def data() -> ImageData:
    return stripes(320)


@pytest.fixture
def test_data() -> ImageData:
    return stripes(160, seed=1)


@pytest.fixture
def key() -> Key:
    return Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)


@pytest.fixture
def net() -> TinyNet:
    torch.manual_seed(3)
    return TinyNet()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which a user works; what is imported and registered there is forgotten afterwards."""
    from indelible.attacks import ATTACKS
    from indelible.embedding import EMBEDDINGS
    from indelible.keys import MARKS
    from indelible.verification.suspects import SUSPECTS

    monkeypatch.chdir(tmp_path)
    for registry in (ATTACKS, EMBEDDINGS, MARKS, SUSPECTS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def install(outside: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package as pip would: its module and a .dist-info folder, in a folder on the path."""
    site = outside / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def made(name: str, code: str, entry_points: str) -> Path:
        (site / f"{name}.py").write_text(textwrap.dedent(code))
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))
        return site

    return made
