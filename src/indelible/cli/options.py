"""Options that several commands share, and how their values are read."""

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.base.errors import InputError
from indelible.cli.known_names import add_choice, data_name

if TYPE_CHECKING:
    from indelible.data.images import Data, Shape
    from indelible.keys.key import Key
    from indelible.train.processes import Group
    from indelible.train.run_folder import Run

Work = Callable[[argparse.Namespace, "Group"], None]


def assignments(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON where they can be, text otherwise."""
    read: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"expected a setting as name=value, got {pair!r}. Example: --set eps=0.02")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def common(command: argparse.ArgumentParser) -> None:
    """Add the options that every command has."""
    command.add_argument("--json", action="store_true", help="print the result as one JSON document")
    command.add_argument("--quiet", action="store_true", help="show no progress")


def accuracy_budget(command: argparse.ArgumentParser, text: str, **more: Any) -> None:
    """Add ``--ba-drop``: percentage points on the command line, a fraction in Python."""
    command.add_argument("--ba-drop", type=percentage_points, metavar="POINTS", help=f"{text} (default: 2)", **more)


def percentage_points(text: str) -> float:
    """Read the value of ``--ba-drop`` as a fraction."""
    if not 0 <= float(text) <= 100:
        raise argparse.ArgumentTypeError(f"accuracy is given in percentage points from 0 to 100, got {text}.")
    return float(text) / 100


def settings_option(command: argparse.ArgumentParser, option: str, what: str) -> None:
    """Add a repeatable option whose values :func:`assignments` reads."""
    command.add_argument(option, action="append", default=[], metavar="NAME=VALUE", help=f"{what}; repeatable")


def threads_option(command: argparse.ArgumentParser) -> None:
    """Add the number of threads."""
    command.add_argument("--threads", type=int, help="number of CPU threads (default: chosen by torch)")


def computing(command: argparse.ArgumentParser) -> None:
    """Add seed, device and threads."""
    command.add_argument(
        "--seed", type=int, default=0, help="random seed; the same seed gives the same result (default: 0)"
    )
    command.add_argument("--device", default="auto", help="device: auto, cpu, cuda, cuda:1 or mps (default: auto)")
    threads_option(command)


def many_devices(command: argparse.ArgumentParser) -> None:
    """Add the number of processes and machines."""
    command.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="processes to start, one per device (default: 1, or as torchrun started)",
    )
    command.add_argument("--nodes", type=int, metavar="N", help="number of machines on which you start this command")


def in_processes(work: Work, arguments: argparse.Namespace) -> int:
    """Do ``work(arguments, group)`` in as many processes as the options ask for; the group's first one may speak."""
    from indelible.train.processes import must_start, spread

    if must_start(arguments.devices, arguments.nodes):
        with tempfile.TemporaryDirectory(prefix="indelible-") as name:
            devices, nodes = arguments.devices or 1, arguments.nodes or 1
            spread(partial(_inside, work, arguments), devices=devices, nodes=nodes, folder=Path(name))
    else:
        _inside(work, arguments)
    return 0


def _inside(work: Work, arguments: argparse.Namespace, _folder: Path | None = None) -> None:
    from indelible.train.processes import joined

    with joined(devices=arguments.devices, nodes=arguments.nodes, device=arguments.device) as group:
        work(arguments, group)


def key_options(command: argparse.ArgumentParser) -> None:
    """Add the settings of a new key."""
    add_choice(
        command, "--kind", "kind of mark", group="marks", default="content",
        help="kind of mark: content (a text), noise (a pattern), unrelated (other images), or plain (no mark, keyed "
        "labels only) (default: content)",
    )  # fmt: skip
    command.add_argument(
        "--marks", type=int, metavar="K", help="number of marks in a codebook (default: 16; with two classes: 32)"
    )
    command.add_argument(
        "--target", type=int, metavar="CLASS", help="use one mark with this class, as in the paper, and no codebook"
    )
    add_choice(
        command, "--labels", "kind of label",
        help="codebook: several marks, each with a secret class (default); fixed: one target class; keyed: a "
        "pseudo-random class for each sample; untargeted: any wrong class",
    )  # fmt: skip
    command.add_argument(
        "--count", type=int, metavar="N", help="samples to embed (default: a share of the images; keyed labels: 100)"
    )
    command.add_argument(
        "--paper-literal", action="store_true",
        help="the paper's marks and class 0, which are public: anybody could claim them",
    )  # fmt: skip
    command.add_argument("--size", type=float, default=1.0, help="relative size of a content mark (default: 1)")
    command.add_argument(
        "--transparency", type=float, default=0.0, help="transparency of a content mark, 0 to 1 (default: 0, opaque)"
    )
    command.add_argument("--strength", type=float, default=0.1, help="strength of a noise mark (default: 0.1)")
    command.add_argument(
        "--source", type=data_name, metavar="NAME|PATH",
        help="data set to take unrelated marks from (default: generated images)",
    )  # fmt: skip
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


def make_key(arguments: argparse.Namespace, classes: int, shape: "Shape", carriers: "Data | None" = None) -> "Key":
    """Make the key that the options describe, with the classes of a codebook bound to ``carriers``."""
    from indelible.data import load
    from indelible.keys.key import Key

    source = None if arguments.source is None else load(arguments.source)[0]
    book = arguments.labels in {None, "codebook"} and arguments.target is None and not arguments.paper_literal
    bind = carriers is not None and book and arguments.kind not in {"unrelated", "plain"}
    return Key.create(
        kind=arguments.kind, classes=classes, shape=shape, target=arguments.target, labels=arguments.labels,
        marks=arguments.marks, carriers=carriers if bind else None, count=arguments.count,
        scheme="paper" if arguments.paper_literal else "derived", size=arguments.size,
        transparency=arguments.transparency, strength=arguments.strength, source=source,
        source_class=arguments.source_class,
    )  # fmt: skip


def owners(arguments: argparse.Namespace) -> "tuple[Run, Key, Data]":
    """Return the owner's run, its key, and the carriers of the samples."""
    from indelible.data import load
    from indelible.train.run_folder import Run

    saved = Run.load(arguments.run_folder)
    key = saved.key()
    if key.labels == "keyed":  # the model has memorised the embedded samples, so these are what it is asked
        return saved, key, saved.images()[0]
    _, test = load(arguments.data or saved.data)
    return saved, key, test
