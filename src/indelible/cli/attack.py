"""``indelible attack``: try to wash the watermark out of a run's model, as a thief would."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.cli.options import assignments, computing, emit, many_devices

if TYPE_CHECKING:
    from torch import nn

    from indelible.train.run import Run

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

_TRANSFORMS = "transforms.json"
HELP = "try to remove the watermark from a model, with the attacker's images only"
EXAMPLES = [
    "indelible attack --list",
    "indelible attack runs/app",
    "indelible attack runs/app --method fp --ba-drop 1",
    "indelible attack runs/app --method ft --recipe paper --out runs/app-ft-paper",
    "indelible attack runs/app --set lr=0.01 --set epochs=10 --out runs/app-ft-gentle",
    "indelible attack runs/app --method distill --set architecture=resnet-w8 --out runs/app-copied",
    "indelible attack runs/app --method preprocess --set transform=blur",
    "indelible attack runs/app --devices 2",
    "indelible attack runs/app --all         # every attack; again, after a crash: finished ones are kept",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible attack``."""
    from indelible.cli import common

    command.add_argument("victim", type=Path, nargs="?", metavar="RUN", help="folder of an embedding run")
    command.add_argument("--list", action="store_true", help="list the attacks with paper, cost and defaults")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--method", default="ft", help="removal attack (default: ft)")
    which.add_argument("--all", action="store_true", help="every attack, each into its own folder, and their table")
    command.add_argument("--recipe", default="sound", help="sound, or paper with its slips (default: sound)")
    command.add_argument(
        "--ba-drop", type=float, metavar="POINTS",
        help="accuracy that an attack may give up when it chooses its strength, in percentage points (default: 2)",
    )  # fmt: skip
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the attack")
    command.add_argument(
        "--out",
        type=Path,
        help="folder of the result (default: RUN-METHOD); with --all what the folders' names begin with",
    )
    computing(command)
    many_devices(command)
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.attacks import ATTACKS
    from indelible.cli.listing import list_methods

    if arguments.list:
        return list_methods(arguments, ATTACKS)
    from indelible.base.errors import InputError
    from indelible.cli.describe import describe_run
    from indelible.report.format import percent
    from indelible.train.run import Run

    if arguments.victim is None:
        raise InputError("name the run whose model is attacked: indelible attack runs/app")
    _check_devices(arguments)
    victim = Run.load(arguments.victim)
    if arguments.all:
        return _suite(arguments, victim)
    settings = _settings(arguments, [arguments.method])[arguments.method]
    out = arguments.out or _folder(arguments, victim, arguments.method)
    if Run.finished(out):
        raise InputError(f"{out} holds a finished run already. Choose another folder with --out, or delete it.")
    done = _attack(arguments, victim, arguments.method, settings, out)
    transforms = _transforms(done)
    document = {"record": done.record.to_json(), "verdict": done.verdict()}
    lines = [
        f"under {row['transform']} {row['strength']:g}: BA {percent(row['ba'])} %, WSR {percent(row['wsr'])} %"
        for row in transforms
    ]
    emit(arguments, document | ({"transforms": transforms} if lines else {}), "\n".join([*lines, describe_run(done)]))
    return 0


def _check_devices(arguments: argparse.Namespace) -> None:
    """Refuse several processes where an attack does more than train: only fine-tuning is spread."""
    from indelible.base.errors import InputError

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("`indelible attack` starts its own processes: use --devices N instead of torchrun.")
    if (arguments.devices or 1) * (arguments.nodes or 1) > 1 and (arguments.all or arguments.method != "ft"):
        raise InputError("several devices are offered for --method ft only. Leave out --devices and --nodes.")


def _transforms(done: "Run") -> list[Mapping[str, Any]]:
    """Return the rates under every transform of a pre-processing attack; nothing for other attacks."""
    from indelible.base.files import read_json

    path = done.folder / _TRANSFORMS
    return list(read_json(path)) if path.exists() else []


def _folder(arguments: argparse.Namespace, victim: "Run", method: str) -> Path:
    """Return where a result goes when nobody says: beside the victim, apart by method and recipe."""
    base: Path = (arguments.out if arguments.all else None) or victim.folder
    return base.with_name("-".join([base.name, method] + (["paper"] if arguments.recipe == "paper" else [])))


def _settings(arguments: argparse.Namespace, methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each method; one that none of them has is refused, one that some have goes to these."""
    from indelible.attacks import ATTACKS
    from indelible.base.errors import InputError, UnknownNameError

    given = assignments(arguments.set)
    known = {method: set(ATTACKS[method].build.__dataclass_fields__) for method in methods}
    if arguments.ba_drop is not None:
        if not 0 <= arguments.ba_drop <= 100:
            raise InputError(f"--ba-drop is given in percentage points from 0 to 100, but is {arguments.ba_drop}.")
        if not any("ba_drop" in names for names in known.values()):
            raise InputError(f"--ba-drop means nothing to {methods[0]}: it has no strength to choose. Leave it out.")
        given["ba_drop"] = arguments.ba_drop / 100
    every = set().union(*known.values())
    for name in given.keys() - every:
        raise UnknownNameError("setting", name, every)
    return {
        method: {"recipe": arguments.recipe, **{name: value for name, value in given.items() if name in names}}
        for method, names in known.items()
    }


def _attack(
    arguments: argparse.Namespace, victim: "Run", method: str, settings: Mapping[str, Any], out: Path
) -> "Run":  # fmt: skip
    """Attack, then look at the result with the key."""
    from dataclasses import replace

    from indelible.attacks import attack, evaluate_curve, evaluate_transforms
    from indelible.base.files import write_json
    from indelible.train.devices import pinned_threads
    from indelible.train.evaluate import accuracy, hit_rate
    from indelible.train.run import Run

    owner, attacker, test = victim.images()
    # Read now, so that a missing key is told before the work; the attack itself is not given it.
    key = victim.key()
    normalize = victim.normalize()
    with pinned_threads(arguments.threads):
        attacked = attack(
            victim.model(), attacker, method, seed=arguments.seed, normalize=normalize, folder=out,
            device=arguments.device, devices=arguments.devices, nodes=arguments.nodes, **settings,
        )  # fmt: skip
        # The attack is over; only now somebody with the key looks at what it did.
        asked = key.questions(owner, test)

        def rates(model: "nn.Module") -> dict[str, float]:
            ba = accuracy(model, test, normalize=normalize)
            return {"ba": ba, "wsr": hit_rate(model, asked.images, asked.labels, normalize=normalize)}

        if attacked.curve is not None:
            Run.keep_curve(out, attacked.curve.name, evaluate_curve(attacked.curve, rates))
        if "preprocessing" in attacked.record.metrics:
            write_json(out / _TRANSFORMS, evaluate_transforms(attacked.model, rates, normalize=normalize))
        name = attacked.architecture or victim.architecture.name
        done = Run.save(
            out, model=attacked.model, record=attacked.record, architecture=replace(victim.architecture, name=name),
            data=victim.data, split=victim.split(), parent=victim.folder,
        )  # fmt: skip
    _judge(done, victim)
    return done


def _judge(done: "Run", victim: "Run") -> None:
    """Verify the attacked model, as its thief runs it, with its owner's key, and keep the verdict."""
    from indelible.attacks import deployed
    from indelible.verify import verify

    normalize = victim.normalize()
    suspect = deployed(done.model(), done.record, normalize=normalize)
    key, (owner, _, test) = victim.key(), victim.images()
    embedded = key.questions(owner, None) if key.labels == "keyed" else None
    done.keep_verdict(verify(suspect, key, test, embedded=embedded, normalize=normalize).to_json())


def _suite(arguments: argparse.Namespace, victim: "Run") -> int:
    """Run every attack that is not finished yet, and print the paper's row."""
    from rich.console import Console

    from indelible.attacks import ATTACKS
    from indelible.base.errors import InputError
    from indelible.report.suite import suite, suite_table
    from indelible.train.run import Run

    settings = _settings(arguments, list(ATTACKS))
    folders, refused = [], {}
    for method in ATTACKS:
        out = _folder(arguments, victim, method)
        if Run.finished(out):
            kept = Run.load(out)
            _check_kept(kept, victim, ATTACKS[method].build.of(settings[method]).to_json())
            if kept.verdict() is None:  # broken off between the attack and the look at it
                _judge(kept, victim)
        else:
            try:
                _attack(arguments, victim, method, settings[method], out)
            except InputError as error:
                # What one attack cannot handle must not cost the others; it is told at the end.
                refused[method] = " ".join(str(error).split())
                continue
        folders.append(out)
    if not folders:
        raise InputError(f"no attack could be run: {'; '.join(refused.values())}")
    rows = suite([victim.folder, *folders])
    if not arguments.json:
        Console().print(suite_table(rows))
    told = [f"{method} was not possible: {reason}" for method, reason in refused.items()]
    document = {"suite": [row.to_json() for row in rows], "runs": [str(folder) for folder in folders]}
    emit(arguments, {**document, "refused": refused}, "\n".join([*told, *(f"kept in {folder}" for folder in folders)]))
    return 2 if refused else 0


def _check_kept(done: "Run", victim: "Run", settings: Mapping[str, Any]) -> None:
    """Refuse to count a finished run of other settings, or of another model, as part of this suite."""
    from indelible.base.errors import InputError

    same = done.record.settings.get("method") == settings
    if not same or done.parent is None or done.parent.resolve() != victim.folder.resolve():
        raise InputError(
            f"{done.folder} holds a finished run of other settings or of another model. Choose other folders with "
            "--out, or delete it."
        )
