"""``indelible embed``: train a model that carries a watermark."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.cli.options import assignments, computing, emit, key_options, many_devices

if TYPE_CHECKING:
    from indelible.keys import Key
    from indelible.train.processes import Group

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "train a model that carries a watermark"
EXAMPLES = [
    "indelible embed --list",
    "indelible embed --out runs/app",
    "indelible embed --data cifar10 --model resnet-18 --preset paper --out runs/cifar",
    "indelible embed --data cifar10 --model mypackage.nets:build --method vanilla --kind noise --out runs/own",
    "indelible embed --recipe light --out runs/light",
    "indelible embed --recipe fast --out runs/fast",
    "indelible embed --set eps=0.01 --set alpha=0.05 --train epochs=30 --out runs/other",
    "indelible embed --start trained --weights runs/plain --out runs/protected",
    "indelible embed --start trained --weights net.safetensors --model resnet-18 --data cifar10 --out runs/protected",
    "indelible embed --devices 4 --out runs/four",
    "torchrun --nproc-per-node 4 -m indelible embed --out runs/four",
    "indelible embed --out runs/app          # again, after a crash: goes on where it was",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible embed``."""
    from indelible.cli import common

    command.add_argument("--list", action="store_true", help="list the methods with paper, cost and defaults")
    command.add_argument("--out", type=Path, help="folder of the run")
    command.add_argument("--data", default="fashion-mini", help="data set or path (default: fashion-mini)")
    command.add_argument(
        "--model", help="network or package.module:function (default: that of --weights, or resnet-mini)"
    )
    command.add_argument("--method", default="app", help="embedding method, or package.module:Class (default: app)")
    command.add_argument("--preset", default="cpu", help="paper or cpu (default: cpu)")
    command.add_argument("--recipe", help="light: cheaper watermark passes; fast: fewer epochs as well (default: none)")
    command.add_argument(
        "--start", default="scratch", help="scratch or trained: a short, gentle run (default: scratch)"
    )
    command.add_argument(
        "--weights", type=Path, metavar="FILE|RUN", help="the trained model: .safetensors, .pt, .pth, or a run"
    )
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the method")
    command.add_argument("--train", action="append", default=[], metavar="NAME=VALUE", help="a setting of the training")
    command.add_argument("--attacker", type=float, default=0.2, help="share of images kept for attacks (default: 0.2)")
    command.add_argument("--key", type=Path, help="use this key instead of a new one")
    key_options(command)
    computing(command)
    many_devices(command)
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.cli.listing import list_methods
    from indelible.embed import EMBEDDINGS

    if arguments.list:
        return list_methods(arguments, EMBEDDINGS)
    from indelible.base.errors import InputError
    from indelible.cli.launch import in_processes

    if arguments.out is None:
        raise InputError("name the folder of the run: --out runs/app")
    _check_places(arguments)
    return in_processes(_embed, arguments)


def _check_places(arguments: argparse.Namespace) -> None:
    """Refuse a setting that was given to the wrong one of ``--set`` and ``--train``, and say where it belongs."""
    from dataclasses import fields

    from indelible.base.errors import InputError
    from indelible.embed import EMBEDDINGS
    from indelible.train import TrainSettings

    method = EMBEDDINGS[arguments.method]
    own, training = ({field.name for field in fields(settings)} for settings in (method.build, TrainSettings))
    for option, other, here, there, what in (
        ("--set", "--train", own, training, "the training"),
        ("--train", "--set", training, own, f"the method {method.name}"),
    ):
        for pair in getattr(arguments, option[2:]):
            name = pair.partition("=")[0]
            if name not in here and name in there:
                raise InputError(f"{name!r} is a setting of {what}. Give it as {other} {pair}.")


def _embed(arguments: argparse.Namespace, _group: "Group") -> None:
    """Hold the folder, in the first process of the group, and do the work."""
    from contextlib import ExitStack

    from indelible.bench.locks import working_on
    from indelible.train.processes import from_first

    with ExitStack() as held:
        from_first(lambda: held.enter_context(working_on(arguments.out)))
        _work(arguments)


def _work(arguments: argparse.Namespace) -> None:
    """Do the work, in each process of the group; the first one writes and prints."""
    from functools import partial

    from indelible.base.errors import InputError
    from indelible.bench.making import EmbeddingJob, embed_into
    from indelible.cli.describe import describe_run
    from indelible.train.devices import pinned_threads
    from indelible.train.processes import from_first
    from indelible.train.run import Run

    if from_first(lambda: Run.finished(arguments.out)):
        raise InputError(f"{arguments.out} holds a finished run already. Choose another folder, or delete it.")
    if (arguments.start == "trained") != (arguments.weights is not None):
        raise InputError("--start trained and --weights FILE or RUN belong together. Give both, or neither.")
    weights = arguments.weights
    if weights is not None and weights.is_dir():
        weights = weights / "model.safetensors"
    job = EmbeddingJob(
        data=arguments.data, network=arguments.model or _network_of(arguments.weights) or "resnet-mini",
        key=partial(_key, arguments), method=arguments.method, attacker=arguments.attacker,
        settings=assignments(arguments.set), preset=arguments.preset, recipe=arguments.recipe,
        train=assignments(arguments.train), start=arguments.start, weights=weights, seed=arguments.seed,
        device=arguments.device,
    )  # fmt: skip
    with pinned_threads(arguments.threads):
        done = embed_into(arguments.out, job)
    if done is not None:
        emit(arguments, done.record.to_json(), describe_run(done))


def _network_of(weights: Path | None) -> str | None:
    """Return the network of a run that weights are taken from; None for a file."""
    from indelible.train.run import Run

    return None if weights is None or not weights.is_dir() else Run.load(weights).architecture.name


def _key(arguments: argparse.Namespace, classes: int, shape: tuple[int, int, int]) -> "Key":
    """Return the key of the run: one that is given, one of an earlier session, or a new one, kept at once."""
    from indelible.cli.making import make_key
    from indelible.data import load
    from indelible.embed import key_for
    from indelible.keys import Key

    kept = arguments.out / "key"
    if arguments.key is not None:
        return Key.load(arguments.key)
    if kept.is_dir():
        return Key.load(kept)
    given = make_key(arguments, classes, shape, load(arguments.data)[1])
    key = key_for(given, arguments.method, arguments.preset, arguments.recipe, **assignments(arguments.set))
    key.save(kept)
    return key
