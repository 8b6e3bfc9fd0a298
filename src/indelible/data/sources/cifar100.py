"""CIFAR-100: 60,000 colour images of 32x32 pixels in a hundred classes (Krizhevsky 2009).

Formats: the official binary and python archives; labels are the fine ones. The digests are published ones (MD5 by the
authors, SHA-256 by several libraries); they were not checked against a download.
"""

from pathlib import Path

from indelible.base.errors import DamagedFileError
from indelible.data.formats.cifar import read_binary, read_python
from indelible.data.sources.source import Pair, Place, RemoteFile, Source, image_pair

__all__ = ["CIFAR100", "read_cifar100"]

_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
CLASSES = tuple(_NAMES.split())
_HOST = "https://www.cs.toronto.edu/~kriz"


def read_cifar100(folder: Path) -> Pair:
    """Read the set from the files in ``folder``, binary or python."""
    if (folder / "test.bin").is_file():
        train, test = read_binary(folder / "train.bin", 2), read_binary(folder / "test.bin", 2)
    elif (folder / "test").is_file():
        train, test = read_python(folder / "train", b"fine_labels"), read_python(folder / "test", b"fine_labels")
    else:
        raise DamagedFileError(f"{folder} holds no CIFAR-100: expected train.bin and test.bin, or train and test.")
    return image_pair(train, test, CLASSES, "cifar100")


CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100",
    licence="no licence stated by its authors; free for research with citation",
    citation="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    classes=CLASSES,
    shape=(3, 32, 32),
    train=50_000,
    test=10_000,
    read=read_cifar100,
    places=(
        Place(
            name="binary",
            title="official binary archive (169 MB)",
            kind="web",
            files=(
                RemoteFile(
                    name="cifar-100-binary.tar.gz",
                    url=f"{_HOST}/cifar-100-binary.tar.gz",
                    digests=(
                        "md5:03b5dce01913d631647c71ecec9e9cb8",
                        "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                    ),
                ),
            ),
        ),
        Place(
            name="python",
            title="official python archive (169 MB)",
            kind="web",
            files=(
                RemoteFile(
                    name="cifar-100-python.tar.gz",
                    url=f"{_HOST}/cifar-100-python.tar.gz",
                    digests=(
                        "md5:eb9058c3a382ffc7106e4002c42a8d85",
                        "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
                    ),
                ),
            ),
        ),
    ),
    contents={
        "train": ("md5:16019d7e3df5f24257cddd939b257f8d",),
        "test": ("md5:f0ef6b0ae62326f3e7ffdfab6717acfc",),
        "train.bin": ("sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",),
        "test.bin": ("sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",),
    },
)
