"""``indelible key``: make a key, look at one, draw its mark."""

import argparse
from pathlib import Path

from indelible.cli.options import emit, key_options

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "make, show and picture watermark keys"
EXAMPLES = [
    "indelible key create my-key --classes 10 --shape 3 32 32",
    "indelible key create my-key --data cifar10 --kind noise",
    "indelible key show my-key",
    "indelible key picture my-key --data fashion-mini --out marked.png",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible key``."""
    from indelible.cli import common

    actions = command.add_subparsers(dest="action", required=True, metavar="create|show|picture")
    create = actions.add_parser("create", help="draw a secret and write a key folder")
    create.add_argument("folder", type=Path)
    create.add_argument(
        "--data", help="take classes and shape from this data set, and bind a codebook to its test images"
    )
    create.add_argument("--classes", type=int)
    create.add_argument("--shape", type=int, nargs=3, metavar=("C", "H", "W"))
    key_options(create)
    show = actions.add_parser("show", help="print a key's public part and check it against its digest")
    show.add_argument("folder", type=Path)
    picture = actions.add_parser(
        "picture", help="draw images without and with the mark; a codebook's marks, each with its class"
    )
    picture.add_argument("folder", type=Path)
    picture.add_argument("--data", required=True, help="data set to draw on")
    picture.add_argument("--out", type=Path, default=Path("marked.png"))
    for action in (create, show, picture):
        common(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.action == "create":
        return _create(arguments)
    from indelible.keys import Key

    key = Key.load(arguments.folder)
    if arguments.action == "show":
        public = {**key.public(), "digest": key.digest}
        emit(arguments, public, "\n".join(f"{name:13} {value}" for name, value in public.items()))
        return 0
    from indelible.data import load
    from indelible.report.sheet import write_sheet

    _, test = load(arguments.data)
    write_sheet(key, test, arguments.out)
    shows = "every mark and its secret class" if key.labels == "codebook" else "the mark"
    text = f"wrote {arguments.out}: it shows {shows}, so keep it like the key"
    emit(arguments, {"picture": str(arguments.out)}, text)
    return 0


def _create(arguments: argparse.Namespace) -> int:
    from indelible.base.errors import InputError
    from indelible.cli.making import make_key

    classes, shape, test = arguments.classes, arguments.shape, None
    if arguments.data is not None:
        from indelible.data import load

        train, test = load(arguments.data)
        classes, shape = len(train.classes), train.shape
    if classes is None or shape is None:
        raise InputError("a key needs --data NAME, or --classes K and --shape C H W.")
    key = make_key(arguments, classes, tuple(shape), test)
    key.save(arguments.folder)
    document = {
        "key": str(arguments.folder), "digest": key.digest, "labels": key.labels, "target": key.target,
        "marks": key.marks, "bound": key.bound,
    }  # fmt: skip
    text = (
        f"wrote {arguments.folder} (digest {key.digest[:16]}...). Keep secret.key safe and to yourself: without it "
        "nothing can be shown, and whoever has it can show the same."
    )
    emit(arguments, document, text)
    return 0
