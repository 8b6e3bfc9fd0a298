"""Measurements of the verdict for ``indelible bench run``: calibration, null models, forgeries, ambiguity."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from indelible.base.errors import InputError
from indelible.cli.options import emit

__all__ = ["VERDICTS", "measure_verdicts", "measuring_options"]

VERDICTS = {
    "calibration": "p-values of simulated null verdicts by every test, and power against the planner",
    "null-models": "claims with derived keys on many models that never saw a watermark",
    "forgery": "forged claims on such models: what a naive rule grants, what derived keys refuse",
    "forgery-methods": "forged claims against ROSE and CAE, on the same models",
    "ambiguity": "a thief trains a key of his own into a stolen model: both keys on both models",
}


def measuring_options(command: argparse.ArgumentParser) -> None:
    """Add the options of these measurements."""
    command.add_argument("--verdicts", type=int, default=2000, help="calibration: verdicts a row (default: 2000)")
    command.add_argument("--models", type=int, default=60, help="null-models, forgeries: how many (default: 60)")


def measure_verdicts(arguments: argparse.Namespace) -> int:
    """Measure, write the record, print a table; exit code 1 if a promise does not hold."""
    from indelible.base.files import write_json
    from indelible.base.records import plain
    from indelible.train.devices import pinned_threads

    if min(arguments.verdicts, arguments.models) < 1:
        raise InputError("--verdicts and --models must be at least 1.")
    does: Mapping[str, Callable[[argparse.Namespace], tuple[Any, bool, list[str]]]] = {
        "calibration": _calibration, "null-models": _null_models, "forgery": _forgery,
        "forgery-methods": _forgery_methods, "ambiguity": _ambiguity,
    }  # fmt: skip
    with pinned_threads(arguments.threads):
        found, held, lines = does[arguments.preset](arguments)
    if arguments.out is not None:
        write_json(arguments.out, plain(found))
    emit(arguments, plain(found), "\n".join(lines))
    return 0 if held else 1


def _calibration(arguments: argparse.Namespace) -> tuple[Any, bool, list[str]]:
    from indelible.bench.calibration import measure_calibration

    found = measure_calibration(verdicts=arguments.verdicts, power_verdicts=3 * arguments.verdicts // 2)
    lines = [f"{'test':34} {'labels':7} {'null':9} share of p-values <= alpha (allowed)"]
    for row in found.rows:
        shares = "  ".join(
            f"{alpha}: {share['found']:.4f} ({share['allowed']:.4f})" for alpha, share in row["shares"].items()
        )
        lines.append(f"{row['test']:34} {row['labels']:7} {row['null']:9} {shares}")
    lines += [
        f"power, {row['labels']} labels, WSR {row['wsr']:g}: {row['queries']} queries, planned {row['planned']:.3f}, "
        f"found {row['found']:.3f}"
        for row in found.power
    ]
    return found, found.holds, [*lines, "holds" if found.holds else "DOES NOT HOLD"]


def _null_models(arguments: argparse.Namespace) -> tuple[Any, bool, list[str]]:
    from indelible.bench.null_models import measure_null_models
    from indelible.bench.nulls import NullModels

    found = measure_null_models(_folder(arguments), trained=NullModels(count=arguments.models))
    lines = [
        f"{found.owned} of {found.verdicts} claims upheld on {found.models} models that never saw a watermark.",
        f"The share of such models that would be claimed is below {found.bound:.3f} at 95 % confidence.",
        *(f"smallest p, {name}: {value:.2g}" for name, value in found.smallest_p.items()),
    ]
    return found, found.owned == 0, lines


def _forgery(arguments: argparse.Namespace) -> tuple[Any, bool, list[str]]:
    from indelible.bench.forgery import measure_forgery
    from indelible.bench.nulls import NullModels

    found = measure_forgery(_folder(arguments), trained=NullModels(count=arguments.models))
    refused = all(row["granted"] == 0 for row in found.rows if row["rule"].startswith("derived key"))
    return found, refused, [f"{found.victims} victims", *map(_attempt, found.rows)]


def _forgery_methods(arguments: argparse.Namespace) -> tuple[Any, bool, list[str]]:
    from indelible.bench.forgery_methods import measure_method_forgery
    from indelible.bench.nulls import NullModels

    found = measure_method_forgery(_folder(arguments), trained=NullModels(count=arguments.models))
    refused = all(row["granted"] == 0 for row in found.rows if row["rule"] == "ROSE")
    return found, refused, [f"{found.victims} victims", *map(_attempt, found.rows)]


def _attempt(row: Mapping[str, Any]) -> str:
    smallest = "" if row["smallest_p"] is None else f", smallest p {row['smallest_p']:.1e}"
    if "granted_without_factor" in row:
        smallest += f" ({row['granted_without_factor']} would pass by p alone)"
    return (
        f"{row['rule']}: {row['attempt']}: {row['granted']} of {row['claims']} granted, mean WSR "
        f"{100 * row['wsr_mean']:.1f} %{smallest}"
    )


def _ambiguity(arguments: argparse.Namespace) -> tuple[Any, bool, list[str]]:
    from indelible.bench.ambiguity import measure_ambiguity

    found = measure_ambiguity(_folder(arguments, "ambiguity"))
    lines = [
        f"{row['model']}'s model, {row['key']}'s key: {row['hits']} of {row['trials']} hits, p = {row['p_value']:.1e}, "
        f"{'shown' if row['owned'] else 'not shown'}"
        for row in found.rows
    ]
    lines.append(f"both keys verify on the stolen model: {'yes' if found.both else 'no'}")
    lines.append(f"the owner's model carries the owner's key alone: {'yes' if found.settled else 'NO'}")
    return found, found.settled, lines


def _folder(arguments: argparse.Namespace, name: str = "null-models") -> Path:
    """Return where models are kept; null models and forgery share theirs."""
    if "://" in arguments.store:
        raise InputError(f"the models are kept in a folder, but --store is {arguments.store!r}. Name a folder.")
    return Path(arguments.store) / name
