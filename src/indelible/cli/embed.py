"""``indelible embed``: train a model that carries a watermark."""

import argparse
from contextlib import ExitStack
from functools import partial
from typing import Any

import indelible
from indelible.base.checks import check_interval
from indelible.base.errors import InputError, UnknownNameError
from indelible.cli.known_names import check_values, known_names, list_methods, setting_names
from indelible.cli.options import assignments, emit, make_key


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.list:
        return list_methods(arguments, "embeddings")
    if arguments.out is None:
        raise InputError("--out is missing. Name the folder to write the run to, for example --out runs/app.")
    if (arguments.start == "trained") != (arguments.weights is not None):
        raise InputError("--start trained and --weights FILE or RUN belong together. Give both, or neither.")
    _check_settings(arguments)
    check_interval("--attacker", arguments.attacker, "[0, 1)", 0.2)
    _in_group(arguments)
    return 0


def _check_settings(arguments: argparse.Namespace) -> None:
    """Refuse unknown settings of ``--set`` and ``--train``; one that belongs to the other option is named.

    For methods of this package, this is done before torch is imported. Values that are no numbers are checked later.
    """
    if "normalize" in assignments(arguments.train):
        raise InputError(
            "normalize is an option of its own, not a training setting. Give it as --normalize MEANS STDS."
        )
    training = [name for name in known_names("training setting") if name != "normalize"]
    own = setting_names("embeddings", arguments.method)
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
    check_values("embeddings", arguments.method, assignments(arguments.set))
    check_values("training", "", assignments(arguments.train))


def _in_group(arguments: argparse.Namespace) -> None:
    """Do the work, in each process of the group; the first one locks the folder, writes and prints."""
    from indelible.bench.locks import working_on
    from indelible.bench.make_run_folder import embed_into
    from indelible.cli.terminal import describe_run
    from indelible.train.devices import pinned_threads
    from indelible.train.processes import from_first, joined

    with joined(device=arguments.device) as group, ExitStack() as held, pinned_threads(arguments.threads):
        from_first(lambda: held.enter_context(working_on(arguments.out)))
        if from_first(lambda: indelible.Run.finished(arguments.out)):
            raise InputError(f"{arguments.out} holds a finished run already. Choose another folder, or delete it.")
        weights, network = arguments.weights, arguments.model or "resnet-mini"
        if weights is not None and weights.is_dir():
            network = arguments.model or indelible.Run.load(weights).architecture.name
            weights = weights / "model.safetensors"
        done = embed_into(
            arguments.out, data=arguments.data, network=network, key=partial(_key, arguments),
            method=partial(_method, arguments), attacker=arguments.attacker, weights=weights,
            seed=arguments.seed, scale=arguments.scale, start=arguments.start,
            train=assignments(arguments.train), device=arguments.device,
            normalize=None if arguments.normalize is None else tuple(arguments.normalize),
        )  # fmt: skip
        if group.first:
            emit(arguments, done.record.to_json(), describe_run(done))


def _method(arguments: argparse.Namespace, key: "indelible.Key") -> Any:
    """Return the method with the settings that the options give it, for this key."""
    from indelible.embedding import EMBEDDINGS

    build, options = EMBEDDINGS[arguments.method].build, assignments(arguments.set)
    return build.for_key(key, arguments.scale, arguments.recipe, arguments.start, **options)


def _key(arguments: argparse.Namespace, classes: int, shape: tuple[int, int, int]) -> "indelible.Key":
    """Return the key of the run: the given one, that of an earlier session, or a new one, which is saved at once."""
    if arguments.key is not None:
        return indelible.Key.load(arguments.key)
    kept = arguments.out / "key"
    there = indelible.Key.load(kept) if kept.is_dir() else None
    if there is not None and there.fingerprint is not None:
        return there
    secret = None if there is None else there.secret
    given = make_key(arguments, classes, shape, indelible.load(arguments.data)[1], secret)
    key: indelible.Key = _method(arguments, given).key_for(given)
    if there is not None and key != there:
        raise InputError(
            f"{kept} holds a key with other settings than these options, from a command that did not finish. Choose "
            f"another folder, or delete {arguments.out}."
        )
    key.save(kept)
    return key
