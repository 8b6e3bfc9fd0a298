"""``indelible attack``: try to wash the watermark out of a run's model, as a thief would."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.cli.options import assignments, computing, emit, many_devices

if TYPE_CHECKING:
    from indelible.data.images import Data
    from indelible.train.run import Run

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

_FEW = 2000
HELP = "try to remove the watermark from a model, with the attacker's images only"
EXAMPLES = [
    "indelible attack --list",
    "indelible attack runs/app",
    "indelible attack runs/app --method fp --ba-drop 1",
    "indelible attack runs/app --method nnl --preset cpu",
    "indelible attack runs/app --method ft --recipe paper --out runs/app-ft-paper",
    "indelible attack runs/app --set lr=0.01 --set epochs=10 --out runs/app-ft-gentle",
    "indelible attack runs/app --method distill --set architecture=resnet-w8 --out runs/app-copied",
    "indelible attack runs/app --method preprocess --set transform=blur",
    "indelible attack runs/app --method mypackage.attacks:Shake",
    "indelible attack runs/app --devices 2",
    "indelible attack runs/app --method distill --data svhn --out runs/app-copied-by-digits",
    "indelible attack runs/app --all         # every attack; again, after a crash: finished ones are kept",
    "indelible attack runs/app --all --no-verdict && indelible verify --runs 'runs/app-*'",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible attack``."""
    from indelible.cli import common

    command.add_argument("victim", type=Path, nargs="?", metavar="RUN", help="folder of an embedding run")
    command.add_argument("--list", action="store_true", help="list the attacks with paper, cost and defaults")
    which = command.add_mutually_exclusive_group()
    which.add_argument("--method", default="ft", help="removal attack, or package.module:Class (default: ft)")
    which.add_argument("--all", action="store_true", help="every attack, each into its own folder, and their table")
    command.add_argument(
        "--no-verdict", action="store_true", help="attack only: the key is not needed, `indelible verify` comes later"
    )
    command.add_argument(
        "--data", metavar="NAME", help="images of another data set for the attacker (default: the attacker's of RUN)"
    )
    command.add_argument("--recipe", default="sound", help="sound, or paper with its slips (default: sound)")
    command.add_argument(
        "--preset", default="full", help="full, the paper's passes, or cpu, a cheaper budget (default: full)"
    )
    command.add_argument(
        "--curve-images", type=int, metavar="N",
        help="test images by which BA and WSR are measured at strengths that were not chosen (default: all; cpu: 2000)",
    )  # fmt: skip
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
    from indelible.bench.attack_suite import attack_folder, check_kept
    from indelible.bench.locks import working_on
    from indelible.bench.making import judge
    from indelible.cli.describe import describe_run
    from indelible.data import load
    from indelible.report.format import percent, verdict_note
    from indelible.train.run import Run

    if arguments.victim is None:
        raise InputError("name the run whose model is attacked: indelible attack runs/app")
    _check_devices(arguments)
    victim = Run.load(arguments.victim)
    if arguments.all:
        if arguments.data is not None:
            raise InputError("--data is for one attack: --all compares attacks on the images of the run. Leave it out.")
        return _suite(arguments, victim)
    settings = _settings(arguments, [arguments.method])[arguments.method]
    out = arguments.out or attack_folder(victim.folder, arguments.method, arguments.recipe, arguments.preset)
    images = None if arguments.data is None else load(arguments.data)[0]
    with working_on(out):
        if Run.finished(out):
            done = Run.load(out)
            if done.verdict() is not None or arguments.no_verdict:
                raise InputError(f"{out} holds a finished run already. Choose another folder with --out, or delete it.")
            digest = (images or victim.images()[1]).digest()
            check_kept(done, victim, ATTACKS[arguments.method].build.of(settings).to_json(), digest)
            judge(done)  # broken off between the attack and the look at it
        else:
            done = _attack(arguments, victim, settings, out, images)
    transforms = _transforms(done)
    document = {"record": done.record.to_json(), "verdict": done.verdict()}
    lines = [
        f"under {row['transform']} {row['strength']:g}: BA {percent(row['ba'])} %, WSR {percent(row['wsr'])} % "
        f"({verdict_note(row.get('owned'), row.get('p_value'))})"
        for row in transforms
    ]
    emit(arguments, document | ({"transforms": transforms} if lines else {}), "\n".join([*lines, describe_run(done)]))
    return 0


def _check_devices(arguments: argparse.Namespace) -> None:
    """Refuse several processes for the suite; one attack says itself whether it can use them."""
    from indelible.base.errors import InputError

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("`indelible attack` starts its own processes: use --devices N instead of torchrun.")
    if (arguments.devices or 1) * (arguments.nodes or 1) > 1 and arguments.all:
        raise InputError(
            "--all has attacks that run in one process only (docs: Several devices). Leave out --devices and --nodes, "
            "or name one attack: ft, nad, distill and overwrite can use several."
        )


def _transforms(done: "Run") -> list[Mapping[str, Any]]:
    """Return the rates under every transform of a pre-processing attack; nothing for other attacks."""
    from indelible.base.files import read_json
    from indelible.bench.making import TRANSFORMS

    path = done.folder / TRANSFORMS
    return list(read_json(path)) if path.exists() else []


def _settings(arguments: argparse.Namespace, methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return the settings of each method; one that none of them has is refused, one that some have goes to these."""
    from indelible.attacks import ATTACKS, settings_of
    from indelible.base.checks import setting_names
    from indelible.base.errors import InputError, UnknownNameError

    given = assignments(arguments.set)
    known = {method: set(setting_names(ATTACKS[method].build)) for method in methods}
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
        method: settings_of(
            method, arguments.preset,
            {"recipe": arguments.recipe, **{name: value for name, value in given.items() if name in names}},
        )
        for method, names in known.items()
    }  # fmt: skip


def _attack(
    arguments: argparse.Namespace, victim: "Run", settings: Mapping[str, Any], out: Path, images: "Data | None"
) -> "Run":  # fmt: skip
    """Attack, then look at the result with the key, if it is wanted."""
    from indelible.bench.making import attack_into
    from indelible.train.devices import pinned_threads

    with pinned_threads(arguments.threads):
        return attack_into(
            out, victim, arguments.method, preset=arguments.preset, seed=arguments.seed, device=arguments.device,
            curve_images=_curve_images(arguments), devices=arguments.devices, nodes=arguments.nodes,
            images=images, judged=not arguments.no_verdict, **settings,
        )  # fmt: skip


def _curve_images(arguments: argparse.Namespace) -> int | None:
    """Return how many test images measure the strengths that an attack did not choose; None is all."""
    from indelible.base.errors import InputError

    asked: int | None = arguments.curve_images
    if asked is not None and asked < 1:
        raise InputError(f"--curve-images is a number of test images from 1 on, but is {asked}.")
    # Twenty models over a whole test set would cost more than a cheap attack itself.
    return _FEW if asked is None and arguments.preset == "cpu" else asked


def _suite(arguments: argparse.Namespace, victim: "Run") -> int:
    """Run every attack that is not finished yet, print what each cost, and the paper's row."""
    from rich.console import Console

    from indelible.attacks import ATTACKS
    from indelible.base.errors import InputError
    from indelible.bench.attack_suite import attack_all, strongest
    from indelible.cli.listing import warn_of_broken
    from indelible.report.suite import PAPER_ATTACKS, attacks_table, suite, suite_table
    from indelible.train.devices import pinned_threads
    from indelible.train.run import Run

    warn_of_broken(ATTACKS)
    ba_drop = 0.02 if arguments.ba_drop is None else arguments.ba_drop / 100
    able = [name for name in ATTACKS if arguments.recipe in ATTACKS[name].build.recipes]
    with pinned_threads(arguments.threads):
        found = attack_all(
            victim, arguments.out, recipe=arguments.recipe, preset=arguments.preset, ba_drop=ba_drop,
            settings=_settings(arguments, able or list(ATTACKS)), seed=arguments.seed, device=arguments.device,
            curve_images=_curve_images(arguments), judged=not arguments.no_verdict,
        )  # fmt: skip
    refused = {row.attack: row.refused for row in found.rows if row.refused}
    if not found.folders:
        raise InputError(f"no attack could be run: {'; '.join(refused.values())}")
    rows = [] if arguments.no_verdict else suite([victim.folder, *found.folders])
    worst = strongest([Run.load(folder) for folder in found.folders], ba_drop)
    if not arguments.json:
        console = Console()
        console.print(attacks_table(found))
        if any(name in PAPER_ATTACKS for row in rows for name in row.after):
            console.print(suite_table(rows))
    told = [f"{method} was not possible: {reason}" for method, reason in refused.items()]
    if found.left_out:
        told.append(f"left out, for they have no recipe {arguments.recipe}: {', '.join(found.left_out)}")
    if worst is not None:
        told.append(_said(worst))
    if arguments.no_verdict:
        told.append(f"no key was asked. Next: indelible verify --runs {' '.join(map(str, found.folders))}")
    document = {
        "suite": [row.to_json() for row in rows], "attacks": found.to_json(), "refused": refused,
        "runs": [str(folder) for folder in found.folders], "strongest": None if worst is None else str(worst.folder),
    }  # fmt: skip
    emit(arguments, document, "\n".join([*told, *(f"kept in {folder}" for folder in found.folders)]))
    return 2 if refused else 0


def _said(run: "Run") -> str:
    """Name the strongest attack in a line."""
    from indelible.report.format import percent

    verdict = run.verdict() or {}
    owned = "still owned" if verdict.get("owned") else "not shown to be owned"
    return f"strongest within the budget: {run.record.method}, WSR {percent(verdict.get('wsr'))} %, {owned}"
