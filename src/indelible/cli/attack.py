"""``indelible attack``: try to remove the watermark from a run's model, as a thief would."""

import argparse
import os
from contextlib import ExitStack
from typing import Any

import indelible
from indelible.base.checks import check_interval
from indelible.base.errors import InputError, UnknownNameError
from indelible.cli.known_names import check_values, list_methods, setting_names, warn_of_broken
from indelible.cli.options import assignments, emit

_FEW = 2000


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.list:
        return list_methods(arguments, "attacks")
    if arguments.victim is None:
        raise InputError("RUN is missing. Name the run to attack, for example: indelible attack runs/app")
    check_interval("--curve-images", arguments.curve_images, "[1, inf)", None)
    if arguments.all:
        return _suite(arguments)
    settings = _settings(arguments, [arguments.method])[arguments.method]
    _single(arguments, settings)
    return 0


def _single(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    """Run one attack, then verify the result with the key, unless ``--no-verdict`` was given.

    That is done in each process of the group; the first one locks the folder, writes and prints.
    """
    from indelible.attacks import ATTACKS
    from indelible.bench.attack_suite import attack_folder, check_kept
    from indelible.bench.locks import working_on
    from indelible.bench.make_run_folder import attack_into, verdict_of
    from indelible.cli.terminal import describe_run
    from indelible.report.format import percent, verdict_note
    from indelible.train.devices import pinned_threads
    from indelible.train.processes import from_first, joined

    with joined(device=arguments.device) as group, ExitStack() as held, pinned_threads(arguments.threads):
        victim = indelible.Run.load(arguments.victim)
        out = arguments.out or attack_folder(victim.folder, arguments.method, arguments.protocol, arguments.scale)
        images = None if arguments.data is None else indelible.load(arguments.data)[0]
        attack = ATTACKS[arguments.method].build.at_scale(arguments.scale, **settings)
        from_first(lambda: held.enter_context(working_on(out)))
        if from_first(lambda: indelible.Run.finished(out)):
            done = indelible.Run.load(out)
            if done.verdict is not None or arguments.no_verdict:
                raise InputError(f"{out} holds a finished run already. Choose another folder with --out, or delete it.")
            check_kept(done, victim, attack, (images or victim.images()[1]).digest())
            done = from_first(lambda: done.keep_verdict(verdict_of(done)))  # an earlier command had --no-verdict
        else:
            done = attack_into(
                out, victim, attack, scale=arguments.scale, seed=arguments.seed, device=arguments.device,
                curve_images=_curve_images(arguments), images=images, judged=not arguments.no_verdict,
            )  # fmt: skip
        if not group.first:
            return
    document: dict[str, Any] = {"record": done.record.to_json(), "verdict": done.verdict}
    if done.transforms is not None:
        document["transforms"] = done.transforms
    lines = [
        f"under {row['transform']} {row['strength']:g}: BA {percent(row['ba'])} %, WSR {percent(row['wsr'])} % "
        f"({verdict_note(row.get('owned'), row.get('p_value'))})"
        for row in done.transforms or ()
    ]
    emit(arguments, document, "\n".join([*lines, describe_run(done)]))


def _settings(arguments: argparse.Namespace, methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return what each method is given. A setting goes to the methods that have it; if none has it, it is refused.

    For methods of this package, torch is not imported.
    """
    given = assignments(arguments.set)
    known = {method: set(setting_names("attacks", method)) for method in methods}
    if arguments.ba_drop is not None:
        if not any("ba_drop" in names for names in known.values()):
            raise InputError(f"{methods[0]} has no strength to choose, so --ba-drop has no effect. Leave it out.")
        given["ba_drop"] = arguments.ba_drop
    every = set().union(*known.values())
    for name in given.keys() - every:
        raise UnknownNameError("setting", name, every)
    for method in methods:
        check_values("attacks", method, given)
    return {
        method: {"protocol": arguments.protocol, **{name: given[name] for name in given.keys() & names}}
        for method, names in known.items()
    }


def _curve_images(arguments: argparse.Namespace) -> int | None:
    """Return how many test images measure the strengths that an attack did not choose; None is all."""
    asked: int | None = arguments.curve_images
    # Twenty models over a whole test set would cost more than a cheap attack itself.
    return _FEW if asked is None and arguments.scale == "cpu" else asked


def _suite(arguments: argparse.Namespace) -> int:
    """Run every attack that is not finished yet, print what each cost, and the paper's row."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "--all includes attacks that run in one process only. Start it without torchrun, or choose one attack with "
            "--method: ft, nad, distill and overwrite can use several processes."
        )
    from indelible.attacks import ATTACKS
    from indelible.bench.attack_suite import attack_all, strongest
    from indelible.bench.measurement import PAPER_ATTACKS, of_run
    from indelible.report.format import percent, verdict_note
    from indelible.report.model_stages import collect
    from indelible.report.run_tables import attacks_table, suite_table
    from indelible.train.devices import pinned_threads

    victim = indelible.Run.load(arguments.victim)
    if arguments.data is not None:
        raise InputError("--data works with one attack only: --all uses the images of the run. Leave --data out.")
    warn_of_broken(ATTACKS)
    ba_drop = 0.02 if arguments.ba_drop is None else arguments.ba_drop
    able = [name for name in ATTACKS if arguments.protocol in ATTACKS[name].build.protocols]
    with pinned_threads(arguments.threads):
        found = attack_all(
            victim, arguments.out, protocol=arguments.protocol, scale=arguments.scale, ba_drop=ba_drop,
            settings=_settings(arguments, able or list(ATTACKS)), seed=arguments.seed, device=arguments.device,
            curve_images=_curve_images(arguments), judged=not arguments.no_verdict,
        )  # fmt: skip
    refused = {row.attack: row.refused for row in found.rows if row.refused}
    if not found.folders:
        raise InputError(f"no attack could be run: {'; '.join(refused.values())}")
    rows = [] if arguments.no_verdict else [row for row in collect([victim.folder, *found.folders]) if row.after]
    worst = strongest([of_run(indelible.Run.load(folder)) for folder in found.folders], ba_drop).stage
    paper = any(name in PAPER_ATTACKS for row in rows for name in row.by_attack)
    tables = [attacks_table(found), *([suite_table(rows)] if paper else [])]
    told = [f"{method} could not be run: {reason}" for method, reason in refused.items()]
    if found.left_out:
        told.append(f"not run, because they have no protocol {arguments.protocol}: {', '.join(found.left_out)}")
    if worst is not None:
        rates = f"BA {percent(worst.ba)} %, WSR {percent(worst.wsr)} %, {verdict_note(worst.owned, worst.p_value)}"
        told.append(f"strongest within {100 * ba_drop:g} points: {worst.attack}, {rates}")
    elif not arguments.no_verdict:
        told.append(f"no attack stayed within {100 * ba_drop:g} points of accuracy: none counts as the strongest")
    if arguments.no_verdict:
        told.append(f"not verified yet. Next: indelible verify --runs {' '.join(map(str, found.folders))}")
    document = {
        "suite": [row.to_json() for row in rows], "attacks": found.to_json(), "refused": refused,
        "runs": [str(folder) for folder in found.folders],
        "strongest": None if worst is None or worst.run is None else str(worst.run.folder),
    }  # fmt: skip
    emit(arguments, document, "\n".join([*told, *(f"saved in {folder}" for folder in found.folders)]), *tables)
    return 2 if refused else 0
