"""``indelible embed``: train a model that carries a watermark."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.base.errors import InputError, UnknownNameError
from indelible.cli.known_names import (
    add_choice,
    add_method,
    data_name,
    known_methods,
    known_names,
    list_methods,
    model_name,
)
from indelible.cli.options import (
    assignments,
    common,
    computing,
    emit,
    in_processes,
    key_options,
    make_key,
    many_devices,
    settings_option,
)

if TYPE_CHECKING:
    from indelible.keys import Key
    from indelible.train.processes import Group

HELP = "train a model that carries a watermark"
EXAMPLES = [
    "indelible embed --list",
    "indelible embed --out runs/app",
    "indelible embed --data cifar10 --model resnet-18 --scale paper --out runs/cifar",
    "indelible embed --data cifar10 --model mypackage.nets:build --method vanilla --kind noise --out runs/own",
    "indelible embed --recipe light --out runs/light",
    "indelible embed --recipe strong --out runs/strong",
    "indelible embed --set eps=0.01 --set alpha=0.05 --train epochs=30 --out runs/other",
    "indelible embed --start trained --weights runs/plain --out runs/protected",
    "indelible embed --start trained --weights net.safetensors --model resnet-18 --data cifar10 --out runs/protected",
    "indelible embed --devices 4 --out runs/four",
    "torchrun --nproc-per-node 4 -m indelible embed --out runs/four",
    "indelible embed --out runs/app          # run it again after a crash: it continues",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible embed``."""
    command.add_argument(
        "--list", action="store_true", help="list the methods with paper, cost and default settings, and exit"
    )
    command.add_argument("--out", type=Path, metavar="FOLDER", help="folder to write the run to (required)")
    command.add_argument(
        "--data", type=data_name, default="fashion-mini", metavar="NAME|PATH",
        help="data set to train on: a name, an image folder or an .npz file (default: fashion-mini)",
    )  # fmt: skip
    command.add_argument(
        "--model", type=model_name, metavar="NAME",
        help="network to train, or package.module:function (default: that of --weights, or resnet-mini)",
    )  # fmt: skip
    add_method(
        command, "embeddings", default="app", metavar="NAME",
        help="embedding method, or package.module:Class (default: app; see --list)",
    )  # fmt: skip
    add_choice(
        command, "--scale", default="cpu",
        help="training settings: cpu (short) or paper (100 epochs, for a GPU) (default: cpu)",
    )  # fmt: skip
    add_choice(
        command, "--recipe",
        help="strength of the watermark against training cost: light, balanced or strong (default: balanced)",
    )  # fmt: skip
    add_choice(
        command, "--start", default="scratch",
        help="scratch: train a new model; trained: add the watermark to the model of --weights (default: scratch)",
    )  # fmt: skip
    command.add_argument(
        "--weights", type=Path, metavar="FILE|RUN", help="the trained model: a .safetensors, .pt or .pth file, or a run"
    )
    settings_option(command, "--set", "change a setting of the method")
    settings_option(command, "--train", "change a training setting")
    command.add_argument(
        "--normalize", nargs=2, type=_numbers, metavar=("MEANS", "STDS"),
        help="mean and standard deviation of the input, one number per channel: 0.49,0.48,0.45 0.25,0.24,0.26 "
        "(default: the network takes images in [0, 1])",
    )  # fmt: skip
    command.add_argument(
        "--attacker", type=float, default=0.2, metavar="SHARE",
        help="share of the training images that is kept for attacks (default: 0.2)",
    )  # fmt: skip
    command.add_argument("--key", type=Path, metavar="FOLDER", help="use this key instead of a new one")
    key_options(command)
    computing(command)
    many_devices(command)
    common(command)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.list:
        return list_methods(arguments, "embeddings")
    if arguments.out is None:
        raise InputError("--out is missing. Name the folder to write the run to, for example --out runs/app.")
    if (arguments.start == "trained") != (arguments.weights is not None):
        raise InputError("--start trained and --weights FILE or RUN belong together. Give both, or neither.")
    _check_settings(arguments)

    return in_processes(_embed, arguments)


def _check_settings(arguments: argparse.Namespace) -> None:
    """Refuse unknown settings of ``--set`` and ``--train``; one that belongs to the other option is named.

    For methods of this package, this is done before torch is imported. The types of the values are checked later.
    """
    if "normalize" in assignments(arguments.train):
        raise InputError(
            "normalize is an option of its own, not a training setting. Give it as --normalize MEANS STDS."
        )
    training = [name for name in known_names("training setting") if name != "normalize"]
    method = known_methods("embeddings").get(arguments.method)
    own = list(_settings_of(arguments.method) if method is None else method["defaults"])
    for option, other, here, there, what in (
        ("--set", "--train", own, training, "the training"),
        ("--train", "--set", training, own, f"the method {arguments.method}"),
    ):
        given = getattr(arguments, option[2:])
        for pair, name in zip(given, [one.partition("=")[0] for one in given], strict=True):
            if name not in here and name in there:
                raise InputError(f"{name!r} is a setting of {what}. Give it as {other} {pair}.")
        for name in assignments(given):
            if name not in here:
                raise UnknownNameError(f"setting of {option}", name, here)


def _settings_of(method: str) -> list[str]:
    """Return the settings of another package's method."""
    from indelible.base.checks import setting_names
    from indelible.embedding import EMBEDDINGS

    return setting_names(EMBEDDINGS[method].build)


def _embed(arguments: argparse.Namespace, _group: "Group") -> None:
    """Lock the folder, in the first process of the group, and do the work."""
    from contextlib import ExitStack

    from indelible.bench.locks import working_on
    from indelible.train.processes import from_first

    with ExitStack() as held:
        from_first(lambda: held.enter_context(working_on(arguments.out)))
        _work(arguments)


def _work(arguments: argparse.Namespace) -> None:
    """Do the work, in each process of the group; the first one writes and prints."""
    from functools import partial

    from indelible.bench.make_run_folder import embed_into
    from indelible.cli.describe import describe_run
    from indelible.train.devices import pinned_threads
    from indelible.train.processes import from_first
    from indelible.train.run_folder import Run

    if from_first(lambda: Run.finished(arguments.out)):
        raise InputError(f"{arguments.out} holds a finished run already. Choose another folder, or delete it.")
    weights = arguments.weights
    if weights is not None and weights.is_dir():
        weights = weights / "model.safetensors"
    with pinned_threads(arguments.threads):
        done = embed_into(
            arguments.out, data=arguments.data,
            network=arguments.model or _network_of(arguments.weights) or "resnet-mini",
            key=partial(_key, arguments), method=arguments.method, attacker=arguments.attacker, weights=weights,
            seed=arguments.seed, scale=arguments.scale, recipe=arguments.recipe, start=arguments.start,
            train=assignments(arguments.train), device=arguments.device,
            normalize=None if arguments.normalize is None else tuple(arguments.normalize),
            **assignments(arguments.set),
        )  # fmt: skip
    if done is not None:
        emit(arguments, done.record.to_json(), describe_run(done))


def _network_of(weights: Path | None) -> str | None:
    """Return the network of a run that weights are taken from; None for a file."""
    from indelible.train.run_folder import Run

    return None if weights is None or not weights.is_dir() else Run.load(weights).architecture.name


def _key(arguments: argparse.Namespace, classes: int, shape: tuple[int, int, int]) -> "Key":
    """Return the key of the run: the given one, that of an earlier session, or a new one, which is saved at once."""
    from indelible.data import load
    from indelible.embedding import key_for
    from indelible.keys import Key

    kept = arguments.out / "key"
    if arguments.key is not None:
        return Key.load(arguments.key)
    if kept.is_dir():
        return Key.load(kept)
    given = make_key(arguments, classes, shape, load(arguments.data)[1])
    key = key_for(given, arguments.method, arguments.scale, arguments.recipe, **assignments(arguments.set))
    key.save(kept)
    return key
