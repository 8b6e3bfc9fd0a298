"""``indelible key``: make a key, show it, draw its marks."""

import argparse

import indelible
from indelible.base.errors import InputError
from indelible.cli.options import emit, make_key


def run_show(arguments: argparse.Namespace) -> int:
    """Print a key's public part, and check it against its digest."""
    key = indelible.Key.load(arguments.folder)
    public = {**key.public(), "digest": key.digest}
    return emit(arguments, public, "\n".join(f"{name:13} {value}" for name, value in public.items()))


def run_picture(arguments: argparse.Namespace) -> int:
    """Draw images without and with the mark."""
    from indelible.report.mark_galleries import write_contact_sheet

    key = indelible.Key.load(arguments.folder)
    write_contact_sheet(key, indelible.load(arguments.data)[1], arguments.out)
    shows = "every mark and its secret class" if key.labels == "codebook" else "the mark"
    text = f"wrote {arguments.out}. It shows {shows}: keep it as secret as the key."
    return emit(arguments, {"picture": str(arguments.out)}, text)


def run_create(arguments: argparse.Namespace) -> int:
    """Draw a secret and write a key folder."""
    classes, shape, test = arguments.classes, arguments.shape, None
    if arguments.data is None and (classes is None or shape is None):
        raise InputError("a key needs --data NAME, or both --classes K and --shape C H W.")
    if arguments.data is not None:
        train, test = indelible.load(arguments.data)
        classes, shape = len(train.classes), train.shape
    key = make_key(arguments, classes, tuple(shape), test)
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
