"""What several commands make from their options: keys and data."""

import argparse

from indelible.data.images import Shape
from indelible.keys.key import Key

__all__ = ["make_key"]


def make_key(arguments: argparse.Namespace, classes: int, shape: Shape) -> Key:
    """Make the key that the options describe."""
    from indelible.data import load

    source = None if arguments.source is None else load(arguments.source)[0]
    return Key.create(
        kind=arguments.kind, classes=classes, shape=shape, target=arguments.target, labels=arguments.labels,
        count=arguments.count, scheme="paper" if arguments.paper_literal else "derived", size=arguments.size,
        transparency=arguments.transparency, strength=arguments.strength, source=source,
        source_class=arguments.source_class,
    )  # fmt: skip
