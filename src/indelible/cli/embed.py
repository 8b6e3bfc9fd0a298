"""``indelible embed``: train a model that carries a watermark."""

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.cli import known_names as known
from indelible.cli import options
from indelible.cli.options import assignments

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
    add = command.add_argument
    add("--list", action="store_true", help="list the methods with paper, cost and default settings, and exit")
    add("--out", type=Path, metavar="FOLDER", help="folder to write the run to (required)")
    add(
        "--data", type=known.data_name, default="fashion-mini", metavar="NAME|PATH",
        help="data set to train on: a name, an image folder or an .npz file (default: fashion-mini)",
    )  # fmt: skip
    add(
        "--model", type=known.model_name, metavar="NAME",
        help="network to train, or package.module:function (default: that of --weights, or resnet-mini)",
    )  # fmt: skip
    known.add_method(
        command, "embeddings", default="app", metavar="NAME",
        help="embedding method, or package.module:Class (default: app; see --list)",
    )  # fmt: skip
    scale = "training settings: cpu (short) or paper (100 epochs, for a GPU) (default: cpu)"
    known.add_choice(command, "--scale", default="cpu", help=scale)
    recipe = "strength of the watermark against training cost: light, balanced or strong (default: balanced)"
    known.add_choice(command, "--recipe", help=recipe)
    start = "scratch: train a new model; trained: add the watermark to the model of --weights (default: scratch)"
    known.add_choice(command, "--start", default="scratch", help=start)
    trained = "the trained model: a .safetensors, .pt or .pth file, or a run"
    add("--weights", type=Path, metavar="FILE|RUN", help=trained)
    options.settings_option(command, "--set", "change a setting of the method")
    options.settings_option(command, "--train", "change a training setting")
    add(
        "--normalize", nargs=2, type=_numbers, metavar=("MEANS", "STDS"),
        help="mean and standard deviation of the input, one number per channel: 0.49,0.48,0.45 0.25,0.24,0.26 "
        "(default: the network takes images in [0, 1])",
    )  # fmt: skip
    kept = "share of the training images that is kept for attacks (default: 0.2)"
    add("--attacker", type=float, default=0.2, metavar="SHARE", help=kept)
    add("--key", type=Path, metavar="FOLDER", help="use this key instead of a new one")
    options.key_options(command)
    options.computing(command)
    options.common(command)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.list:
        return known.list_methods(arguments, "embeddings")
    if arguments.out is None:
        raise InputError("--out is missing. Name the folder to write the run to, for example --out runs/app.")
    if (arguments.start == "trained") != (arguments.weights is not None):
        raise InputError("--start trained and --weights FILE or RUN belong together. Give both, or neither.")
    _check_settings(arguments)
    return options.in_processes(_embed, arguments)


def _check_settings(arguments: argparse.Namespace) -> None:
    """Refuse unknown settings of ``--set`` and ``--train``; one that belongs to the other option is named.

    For methods of this package, this is done before torch is imported. The types of the values are checked later.
    """
    if "normalize" in assignments(arguments.train):
        raise InputError(
            "normalize is an option of its own, not a training setting. Give it as --normalize MEANS STDS."
        )
    training = [name for name in known.known_names("training setting") if name != "normalize"]
    own = known.setting_names("embeddings", arguments.method)
    for option, other, here, there, what in (
        ("--set", "--train", own, training, "the training"),
        ("--train", "--set", training, own, f"the method {arguments.method}"),
    ):
        for pair in getattr(arguments, option[2:]):
            (name,) = assignments([pair])
            if name not in here and name in there:
                raise InputError(f"{name!r} is a setting of {what}. Give it as {other} {pair}.")
            if name not in here:
                raise UnknownNameError(f"setting of {option}", name, here)


def _embed(arguments: argparse.Namespace) -> None:
    """Do the work, in each process of the group; the first one locks the folder, writes and prints."""
    from indelible.bench.locks import working_on
    from indelible.bench.make_run_folder import embed_into
    from indelible.cli.terminal import describe_run
    from indelible.train.devices import pinned_threads
    from indelible.train.processes import from_first

    with ExitStack() as held, pinned_threads(arguments.threads):
        from_first(lambda: held.enter_context(working_on(arguments.out)))
        if from_first(lambda: indelible.Run.finished(arguments.out)):
            raise InputError(f"{arguments.out} holds a finished run already. Choose another folder, or delete it.")
        weights, network = arguments.weights, arguments.model or "resnet-mini"
        if weights is not None and weights.is_dir():
            network = arguments.model or indelible.Run.load(weights).architecture.name
            weights = weights / "model.safetensors"
        done = embed_into(
            arguments.out, data=arguments.data, network=network, key=partial(_key, arguments),
            method=arguments.method, attacker=arguments.attacker, weights=weights,
            seed=arguments.seed, scale=arguments.scale, recipe=arguments.recipe, start=arguments.start,
            train=assignments(arguments.train), device=arguments.device,
            normalize=None if arguments.normalize is None else tuple(arguments.normalize),
            **assignments(arguments.set),
        )  # fmt: skip
        if done is not None:
            options.emit(arguments, done.record.to_json(), describe_run(done))


def _key(arguments: argparse.Namespace, classes: int, shape: tuple[int, int, int]) -> "indelible.Key":
    """Return the key of the run: the given one, that of an earlier session, or a new one, which is saved at once."""
    from indelible.embedding import key_for

    kept = arguments.out / "key"
    if arguments.key is not None or kept.is_dir():
        return indelible.Key.load(arguments.key or kept)
    given = options.make_key(arguments, classes, shape, indelible.load(arguments.data)[1])
    key = key_for(given, arguments.method, arguments.scale, arguments.recipe, **assignments(arguments.set))
    key.save(kept)
    return key
