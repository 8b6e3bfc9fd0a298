"""Options that several commands share, and how their values are read."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from indelible.base.errors import InputError

__all__ = ["assignments", "computing", "content_of", "emit", "key_options", "many_devices"]


def assignments(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON where they can be, text otherwise."""
    read: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"a setting is written name=value, but came as {pair!r}. Example: --set eps=0.02")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def computing(command: argparse.ArgumentParser) -> None:
    """Add seed, device and threads."""
    command.add_argument("--seed", type=int, default=0, help="the same seed gives the same bits (default: 0)")
    command.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: auto)")
    command.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")


def many_devices(command: argparse.ArgumentParser) -> None:
    """Add the number of processes and machines."""
    command.add_argument(
        "--devices", type=int, metavar="N", help="processes, one device each (default: 1, or what torchrun launched)"
    )
    command.add_argument("--nodes", type=int, metavar="N", help="machines on which this command is started")


def key_options(command: argparse.ArgumentParser) -> None:
    """Add what a new key is made of."""
    command.add_argument(
        "--kind", default="content", help="content, noise, unrelated, or plain: no mark, keyed labels (default content)"
    )
    command.add_argument("--marks", type=int, metavar="K", help="marks of a codebook (default: 16; 32 at two classes)")
    command.add_argument(
        "--target", type=int, metavar="CLASS", help="one mark with this class, as in the paper, instead of a codebook"
    )
    command.add_argument(
        "--labels",
        help="codebook: several marks, each with a secret class (default); fixed: one target class; keyed: a "
        "pseudo-random class for each sample; untargeted: any wrong class",
    )  # fmt: skip
    command.add_argument("--count", type=int, help="samples to embed (default: a share of the images; keyed: 100)")
    command.add_argument(
        "--paper-literal", action="store_true", help="the paper's public marks and class 0: no weight against forgery"
    )
    command.add_argument("--size", type=float, default=1.0, help="relative size of a content mark (default: 1)")
    command.add_argument("--transparency", type=float, default=0.0, help="of a content mark (default: 0, opaque)")
    command.add_argument("--strength", type=float, default=0.1, help="of a noise mark (default: 0.1)")
    command.add_argument("--source", help="second data set for unrelated marks (default: generated images)")
    command.add_argument("--source-class", type=int, help="use only this class of --source")


def emit(arguments: argparse.Namespace, document: Any, text: str) -> None:
    """Print the result: JSON for machines, text for people."""
    print(json.dumps(document, indent=2, allow_nan=False) if arguments.json else text)


def content_of(path: Path) -> bytes:
    """Return the bytes of a file that an option names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}). Check the path.") from error
