"""``indelible attack``: try to wash the watermark out of a run's model, as a thief would."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from indelible.cli.options import assignments, computing, emit, many_devices

if TYPE_CHECKING:
    from indelible.train.processes import Group

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "try to remove the watermark from a model, with the attacker's images only"
EXAMPLES = [
    "indelible attack --list",
    "indelible attack runs/app",
    "indelible attack runs/app --method ft --recipe paper --out runs/app-ft-paper",
    "indelible attack runs/app --set lr=0.01 --set epochs=10 --out runs/app-ft-gentle",
    "indelible attack runs/app --devices 2",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible attack``."""
    from indelible.cli import common

    command.add_argument("victim", type=Path, nargs="?", metavar="RUN", help="folder of an embedding run")
    command.add_argument("--list", action="store_true", help="list the attacks with paper, cost and defaults")
    command.add_argument("--method", default="ft", help="removal attack (default: ft)")
    command.add_argument("--recipe", default="sound", help="sound, or paper with its slips (default: sound)")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the attack")
    command.add_argument("--out", type=Path, help="folder of the result (default: RUN-METHOD)")
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
    from indelible.cli.launch import in_processes

    if arguments.victim is None:
        raise InputError("name the run whose model is attacked: indelible attack runs/app")
    return in_processes(_attack, arguments)


def _attack(arguments: argparse.Namespace, group: "Group") -> None:
    """Do the work, in each process of the group; the first one writes and prints."""
    from indelible.attacks import attack
    from indelible.base.errors import InputError
    from indelible.cli.describe import describe_run
    from indelible.train.devices import pinned_threads
    from indelible.train.processes import from_first
    from indelible.train.run import Run
    from indelible.verify import verify

    victim = Run.load(arguments.victim)
    out = arguments.out or victim.folder.with_name(f"{victim.folder.name}-{arguments.method}")
    if from_first(lambda: Run.finished(out)):
        raise InputError(f"{out} holds a finished run already. Choose another folder with --out, or delete it.")
    _, attacker, test = victim.images()
    # Read now, so that a missing key is told before the work; the attack itself is not given it.
    key = victim.key()
    normalize = victim.normalize()
    with pinned_threads(arguments.threads):
        attacked = attack(
            victim.model(), attacker, arguments.method, seed=arguments.seed, normalize=normalize, folder=out,
            device=arguments.device, **{"recipe": arguments.recipe, **assignments(arguments.set)},
        )  # fmt: skip
        if not group.first:
            return
        done = Run.save(
            out, model=attacked.model, record=attacked.record, architecture=victim.architecture, data=victim.data,
            split=victim.split(), parent=victim.folder,
        )  # fmt: skip
        # The attack is over; only now somebody with the key looks at what it did.
        verdict = verify(attacked.model, key, test, normalize=normalize)
    done.keep_verdict(verdict.to_json())
    emit(arguments, {"record": attacked.record.to_json(), "verdict": verdict.to_json()}, describe_run(done))
