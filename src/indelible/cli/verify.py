"""``indelible verify``: is this model derived from the owner's?"""

import argparse
import glob
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

import indelible
from indelible.attacks import deployed
from indelible.base.errors import InputError
from indelible.base.files import replacing
from indelible.base.imports import needed
from indelible.base.progress import wanted
from indelible.bench.attack_suite import strongest
from indelible.bench.make_run_folder import HELD_OUT
from indelible.bench.measurement import of_run
from indelible.cli.options import asked_suspect, emit
from indelible.cli.query_plan import planned_session, show_plan
from indelible.cli.terminal import describe_verdict
from indelible.data.digests import image_digests
from indelible.data.images import Data
from indelible.report.format import p_value, percent
from indelible.train.devices import pinned_threads
from indelible.verification import CodebookPlan, Suspect, as_suspect, corrected, planned
from indelible.verification.careful_queries import order_seed
from indelible.verification.suspects import ModuleSuspect

_ALONE = ("run_folder", "suspect", "export", "certificate", "log", "family")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.plan:
        return show_plan(arguments)
    if arguments.runs:
        return _verify_runs(arguments)
    with pinned_threads(arguments.threads):
        if arguments.export is not None:
            return _export(arguments)
        document, text = _verify_one(arguments)
    return emit(arguments, document, text, ok=document["owned"])


def _verify_one(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Verify one model, keep the verdict in its run, and return it as JSON values and as text."""
    certificates = needed("indelible_companions.certificate", what="--certificate") if arguments.certificate else None
    saved, key, test, options = _asked_about(arguments)
    own = None if arguments.suspect is not None else saved
    suspect = _suspect(arguments, saved, key)
    plan = planned_session(arguments, suspect, key, test)
    if plan is not None:
        options |= plan.options
        if wanted():
            print(plan.sentence, file=sys.stderr)
    verdict = _in_family(_verdict(arguments, suspect, key, test, options, plan), arguments.family)
    document = verdict.to_json()
    lines = [describe_verdict(document), *_second_try(verdict, suspect, len(test))]
    if plan is not None:
        document["plan"] = plan.to_json()
    if own is not None:
        own.keep_verdict(document)
    if certificates is not None and own is not None:
        carriers, normalize = own.images()[0] if key.labels == "keyed" else test, own.normalize()
        noise = {"sigma": arguments.sigma, "draws": arguments.draws}
        found = certificates.certify(own.model(), key, carriers, normalize=normalize, **noise)
        document["certificate"] = found.to_json()
        lines.append(found.described())
    return document, "\n".join(lines)


def _second_try(verdict: indelible.Verdict, suspect: object, images: int) -> list[str]:
    """Say, in a line, how a codebook's verdict that is not shown may become clear."""
    asked = round(verdict.counts.get("carriers", 0.0))
    if verdict.owned or verdict.procedure != "codebook":
        return []
    if isinstance(suspect, ModuleSuspect):
        said = "You hold the suspect's weights: --procedure relearning may bring back marks that an attack silenced."
    elif asked < images:
        more = min(images, 5 * asked)
        said = f"Weak marks show on more images: --max-carriers {more} asks each mark on that many instead of {asked}."
    else:
        return []
    return [f"{said} It is a second try, so compare its p with half of alpha, {verdict.alpha / 2:g}."]


def _asked_about(arguments: argparse.Namespace) -> tuple[indelible.Run | None, indelible.Key, Data, dict[str, Any]]:
    """Return the run that is named, the key, the carriers, and the arguments of ``verify``."""
    saved = None if arguments.run_folder is None else indelible.Run.load(arguments.run_folder)
    alone = arguments.key and arguments.data and (arguments.suspect or arguments.export)
    if saved is None and not alone:
        raise InputError("name a run, or --suspect PLACE with --key FOLDER and --data NAME.")
    if arguments.certificate and arguments.suspect is not None:
        raise InputError("--certificate needs the weights: give the run alone, without --suspect.")
    if arguments.budget is not None and arguments.log is None:
        raise InputError("--budget counts over sessions: it needs --log FILE.")
    key = saved.key() if saved is not None and arguments.key is None else indelible.Key.load(arguments.key)
    _, test = indelible.load(arguments.data or (saved.data if saved is not None else ""))
    if arguments.max_carriers is not None:
        if not 0 < arguments.max_carriers <= len(test):
            raise InputError(f"--max-carriers must be 1..{len(test)}, the test images, got {arguments.max_carriers}.")
        if key.labels != "codebook":
            test = test.gather(key.choose("test images", len(test), arguments.max_carriers).sort().values)
        elif arguments.max_samples is None:
            arguments.max_samples = arguments.max_carriers * len(key.codebook())
    options = {name: getattr(arguments, name) for name in ("procedure", "alpha", "decoys", "decoy_samples")}
    options["max_samples"] = None if arguments.max_samples == "all" else arguments.max_samples
    options["accuracy"] = arguments.suspect is None or arguments.accuracy
    if key.labels == "keyed":
        if saved is None:
            raise InputError("keyed labels need the embedded samples: give the owner's run, or one made from it.")
        options["embedded"] = key.questions(saved.images()[0], None)
    return saved, key, test, options


def _suspect(arguments: argparse.Namespace, saved: indelible.Run | None, key: indelible.Key) -> Suspect:
    if arguments.suspect is not None or saved is None:
        return asked_suspect(arguments, key.classes, key.shape, saved)
    # A thief's pre-processing is part of the suspect.
    model = deployed(saved.model(), saved.record, normalize=saved.normalize())
    return as_suspect(model, normalize=saved.normalize())


def _verdict(
    arguments: argparse.Namespace, suspect: Suspect, key: indelible.Key, test: Data, options: dict[str, Any],
    plan: CodebookPlan | None,
) -> indelible.Verdict:  # fmt: skip
    if arguments.log is None:
        return indelible.verify(suspect, key, test, **options)
    # The plan goes into the log: whoever counts again asks as much of it.
    about = {"key": key.digest} | ({} if plan is None else {"plan": plan.to_json()})
    log, budget = arguments.log, arguments.budget
    return indelible.verify_logged(suspect, key, test, log=log, budget=budget, about=about, **options)


def _in_family(verdict: indelible.Verdict, others: Sequence[Path]) -> indelible.Verdict:
    """Return ``verdict`` corrected together with the last verdicts of other runs."""
    if not others:
        return verdict
    family = [verdict]
    for folder in others:
        found = indelible.Run.load(folder).verdict
        if found is None:
            raise InputError(f"--family {folder} has no verdict yet. Run `indelible verify {folder}` first.")
        family.append(indelible.Verdict.from_json(found))
    return corrected(family)[0]


def _export(arguments: argparse.Namespace) -> int:
    _, key, test, options = _asked_about(arguments)
    if options.get("procedure") == "sequential":
        raise InputError("--export does not go with --procedure sequential, which decides after every answer.")
    images = planned(lambda stand_in: indelible.verify(stand_in, key, test, **options), seed=order_seed(key))
    with replacing(arguments.export) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, images=images.numpy(), digests=np.array(image_digests(images)))
    text = (
        f"wrote {arguments.export}: {len(images)} images and their digests, shuffled. Answer them in a file .csv with "
        "the columns digest,label and give that as --suspect. Anyone who sees it learns the marks."
    )
    return emit(arguments, {"questions": str(arguments.export), "queries": len(images)}, text)


def _found_runs(patterns: Sequence[str]) -> list[Path]:
    """Return the folders that are named, and of patterns those that hold a finished run; each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        if Path(pattern).exists() or not glob.has_magic(pattern):
            found[Path(pattern)] = None  # named: what is wrong with it is told when it is read
            continue
        matches = map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207 - Path.glob takes no absolute pattern
        found |= dict.fromkeys(folder for folder in matches if indelible.Run.finished(folder))
    if not found:
        raise InputError(f"--runs {' '.join(patterns)}: there is no finished run. Make one with `indelible attack`.")
    return list(found)


def _verify_runs(arguments: argparse.Namespace) -> int:
    """Verify every run with the same options, keep each verdict in its folder, and print a table.

    The exit code is 0 when every run is owned, 1 otherwise.
    """
    for name in _ALONE:
        if getattr(arguments, name):
            raise InputError(
                f"--runs verifies the models of runs: leave out {'RUN' if name == 'run_folder' else f'--{name}'}."
            )
    runs = []
    for folder in _found_runs(arguments.runs):
        with pinned_threads(arguments.threads):
            _verify_one(argparse.Namespace(**{**vars(arguments), "run_folder": folder}))
        runs.append(indelible.Run.load(folder))
    verdicts = [one.verdict or {} for one in runs]
    found = strongest([of_run(run) for run in runs], arguments.ba_drop).stage
    worst = None if found is None else found.run
    said = "" if worst is None else f"strongest attack within {100 * arguments.ba_drop:g} points: {worst.folder}"
    if worst is None and any("held_out" in run.record.metrics for run in runs):
        said = f"no attack stayed within {100 * arguments.ba_drop:g} points of accuracy"
    document = {
        "verdicts": [{"run": str(run.folder), **verdict} for run, verdict in zip(runs, verdicts, strict=True)],
        "strongest": None if worst is None else str(worst.folder),
    }
    owned = all(verdict.get("owned") for verdict in verdicts)
    return emit(arguments, document, said, _table(runs, verdicts), ok=owned)


def _table(runs: Sequence[indelible.Run], verdicts: Sequence[Mapping[str, Any]]) -> Table:
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    drawn.add_column("Run", overflow="fold")
    for title in ("Held-out BA", "BA", "WSR", "p", "Owned"):
        drawn.add_column(title, justify="right", no_wrap=True)
    for run, verdict in zip(runs, verdicts, strict=True):
        held = run.record.metrics.get(HELD_OUT) or {}
        drawn.add_row(
            escape(run.folder.name), percent(held.get("after")), percent(verdict.get("ba")),
            percent(verdict.get("wsr")), p_value(verdict.get("p_value")), "yes" if verdict.get("owned") else "no",
        )  # fmt: skip
    return drawn
