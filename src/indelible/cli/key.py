"""``indelible key``: make a key, show it, draw its marks."""

import argparse
from pathlib import Path

import indelible
from indelible.base.errors import InputError
from indelible.cli import options
from indelible.cli.known_names import data_name
from indelible.cli.options import emit

HELP = "make a watermark key, show it, or draw its marks"
EXAMPLES = [
    "indelible key create my-key --classes 10 --shape 3 32 32",
    "indelible key create my-key --data cifar10 --kind noise",
    "indelible key show my-key",
    "indelible key picture my-key --data fashion-mini --out marked.png",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible key``."""
    made = options.add_actions(
        command,
        create=(_create, "draw a secret and write a key folder"),
        show=(_show, "print a key's public part and check it against its digest"),
        picture=(_picture, "draw images without and with the mark; for a codebook, every mark with its class"),
    )
    create, show, picture = made.values()
    create.add_argument("folder", type=Path, help="folder to write the key to")
    for action in (show, picture):
        action.add_argument("folder", type=Path, help="folder of the key")
    taken = "take classes and shape from this data set, and bind a codebook to its test images"
    create.add_argument("--data", type=data_name, metavar="NAME|PATH", help=taken)
    create.add_argument("--classes", type=int, metavar="K", help="number of classes of the model")
    sizes = "channels, height and width of an image"
    create.add_argument("--shape", type=int, nargs=3, metavar=("C", "H", "W"), help=sizes)
    options.key_options(create)
    marked = "data set whose images get the marks"
    picture.add_argument("--data", type=data_name, required=True, metavar="NAME|PATH", help=marked)
    picture.add_argument("--out", type=Path, default=Path("marked.png"), help="picture to write (default: marked.png)")
    options.common(*made.values())


def _show(arguments: argparse.Namespace) -> int:
    key = indelible.Key.load(arguments.folder)
    public = {**key.public(), "digest": key.digest}
    return emit(arguments, public, "\n".join(f"{name:13} {value}" for name, value in public.items()))


def _picture(arguments: argparse.Namespace) -> int:
    from indelible.report.mark_galleries import write_contact_sheet

    key = indelible.Key.load(arguments.folder)
    write_contact_sheet(key, indelible.load(arguments.data)[1], arguments.out)
    shows = "every mark and its secret class" if key.labels == "codebook" else "the mark"
    text = f"wrote {arguments.out}. It shows {shows}: keep it as secret as the key."
    return emit(arguments, {"picture": str(arguments.out)}, text)


def _create(arguments: argparse.Namespace) -> int:
    classes, shape, test = arguments.classes, arguments.shape, None
    if arguments.data is None and (classes is None or shape is None):
        raise InputError("a key needs --data NAME, or both --classes K and --shape C H W.")
    if arguments.data is not None:
        train, test = indelible.load(arguments.data)
        classes, shape = len(train.classes), train.shape
    key = options.make_key(arguments, classes, tuple(shape), test)
    key.save(arguments.folder)
    document = {
        "key": str(arguments.folder), "digest": key.digest, "labels": key.labels, "target": key.target,
        "marks": key.marks, "bound": key.bound,
    }  # fmt: skip
    text = (
        f"wrote {arguments.folder} (digest {key.digest[:16]}...). Keep secret.key safe and secret: without it you "
        "cannot prove anything, and anyone who has it can claim your model."
    )
    return emit(arguments, document, text)
