"""What several commands make from their options: keys and data."""

import argparse

from indelible.data.images import Data, Shape
from indelible.keys.key import Key
from indelible.train.run import Run

__all__ = ["make_key", "owners"]


def make_key(arguments: argparse.Namespace, classes: int, shape: Shape, carriers: Data | None = None) -> Key:
    """Make the key that the options describe; the classes of a codebook are bound to ``carriers``."""
    from indelible.data import load

    source = None if arguments.source is None else load(arguments.source)[0]
    book = arguments.labels in {None, "codebook"} and arguments.target is None and not arguments.paper_literal
    bind = carriers is not None and book and arguments.kind in {"content", "noise"}
    return Key.create(
        kind=arguments.kind, classes=classes, shape=shape, target=arguments.target, labels=arguments.labels,
        marks=arguments.marks, carriers=carriers if bind else None, count=arguments.count,
        scheme="paper" if arguments.paper_literal else "derived", size=arguments.size,
        transparency=arguments.transparency, strength=arguments.strength, source=source,
        source_class=arguments.source_class,
    )  # fmt: skip


def owners(arguments: argparse.Namespace) -> tuple[Run, Key, Data]:
    """Return the owner's run, its key, and the carriers of the samples."""
    from indelible.data import load

    saved = Run.load(arguments.run_folder)
    key = saved.key()
    if key.labels == "keyed":  # learnt by heart: the embedded samples are what is asked
        return saved, key, saved.images()[0]
    _, test = load(arguments.data or saved.data)
    return saved, key, test
