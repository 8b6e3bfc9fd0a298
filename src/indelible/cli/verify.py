"""``indelible verify``: is this model derived from the owner's?"""

import argparse
import glob
import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import indelible
from indelible.base.errors import InputError
from indelible.cli import verify_options as deciding
from indelible.cli.options import accuracy_budget, asked_suspect, asking_options, common, emit, threads_option

if TYPE_CHECKING:
    from rich.table import Table

    from indelible.data.images import Data
    from indelible.verification import SessionPlan, Suspect

HELP = "decide whether a model carries a key's watermark (exit code 1 if that is not shown)"
EXAMPLES = [
    "indelible verify runs/app-ft",
    "indelible verify runs/app-ft --alpha 0.01 --queries 100",
    "indelible verify runs/somebody-elses --key my-key --json",
    "indelible verify runs/app-ft --test sequential",
    "indelible verify runs/app-ft --family runs/vanilla-ft --family runs/ew-ft",
    "indelible verify --runs 'runs/app-*'",
    "indelible verify --plan --wsr 0.3 --classes 10",
    "indelible verify --plan --wsr 0.3 --null-rate 0.11",
    "indelible verify runs/app --suspect http://localhost:8080/v2/models/model --input dtype=uint8 --log asked.jsonl",
    "indelible verify runs/app --suspect service.json --log asked.jsonl --wsr 0.9 --budget 2000",
    "indelible verify runs/app --suspect model.onnx --input dtype=float32 --carriers 200",
    "indelible verify runs/app --suspect stolen.pt --model resnet-mini",
    "indelible verify runs/app --export questions.npz && indelible verify runs/app --suspect answers.csv",
    "indelible verify runs/cw --certificate --sigma 0.05 --draws 200",
]
_ALONE = ("run_folder", "suspect", "export", "certificate", "log", "family")


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible verify``."""
    add = command.add_argument
    add(
        "run_folder", type=Path, metavar="RUN", nargs="?",
        help="folder of a run: the suspect, or with --suspect the owner's run, for key, data and architecture",
    )  # fmt: skip
    several = "several runs, as folders or a pattern: a verdict for each, and a table"
    add("--runs", nargs="+", metavar="RUN", help=several)
    accuracy_budget(
        command, "with --runs: accuracy that the strongest attack may have cost, in percentage points", default=0.02
    )
    add("--key", type=Path, help="key folder (default: the run's own, or that of the run it attacks)")
    add("--data", help="carriers: a data set whose test images are marked (default: the run's)")
    add("--alpha", type=float, default=1e-6, help="level of the decision (default: 1e-6)")
    asked = "key samples to ask (default: all; of a server, as planned)"
    add("--queries", type=deciding.number_or_all, metavar="N", help=asked)
    deciding.deciding_options(command)
    few = "mark only N test images, which the key chooses: fewer queries (default of a codebook: 200)"
    add("--carriers", type=int, metavar="N", help=few)
    add("--accuracy", action="store_true", help="also measure BA of --suspect: a query per test image")
    add("--export", type=Path, metavar="NPZ", help="write the queries for someone else to answer")
    asking_options(command, unless="the run's own model")
    certify = "also certify the mark against changes of the weights (white box)"
    add("--certificate", action="store_true", help=certify)
    add("--sigma", type=float, default=1.0, help="weight noise of the certificate (default: 1)")
    add("--draws", type=int, default=1000, help="noisy copies of the certificate (default: 1000)")
    threads_option(command)
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.plan or arguments.runs:
        return deciding.show_plan(arguments) if arguments.plan else _verify_runs(arguments)
    from indelible.base.progress import wanted
    from indelible.cli.terminal import describe_certificate, describe_verdict
    from indelible.train.devices import pinned_threads

    saved, key, test = _asked_about(arguments)
    own = arguments.suspect is None
    options: dict[str, Any] = deciding.decision(arguments)
    owner = None
    if key.labels == "keyed":
        if saved is None:
            raise InputError("keyed labels need the embedded samples: give the owner's run, or one made from it.")
        owner = saved.images()[0]
        options["embedded"] = key.questions(owner, None)
    options["accuracy"] = own or arguments.accuracy
    with pinned_threads(arguments.threads):
        if arguments.export is not None:
            return _export(arguments, key, test, options)
        suspect = _suspect(arguments, saved, key)
        plan = deciding.planned_session(arguments, suspect, key, test, options.get("embedded"))
        if plan is not None:
            options |= plan.options
            if wanted():
                print(plan.sentence, file=sys.stderr)
        verdict = deciding.in_family(_verdict(arguments, suspect, key, test, options, plan), arguments.family)
        document = verdict.to_json()
        text = "\n".join([describe_verdict(document), *_second_try(verdict, suspect, len(test))])
        if plan is not None:
            document["plan"] = plan.to_json()
        if own and saved is not None:
            saved.keep_verdict(document)
        if arguments.certificate and own and saved is not None:
            noise = {"sigma": arguments.sigma, "draws": arguments.draws}
            certificate = indelible.certify(
                saved.model(), key, owner or test, normalize=saved.normalize(), **noise
            ).to_json()
            document, text = {**document, "certificate": certificate}, f"{text}\n{describe_certificate(certificate)}"
    return emit(arguments, document, text, ok=verdict.owned)


def _second_try(verdict: "indelible.Verdict", suspect: object, images: int) -> list[str]:
    """Say, in a line, how a codebook's verdict that is not shown may become clear."""
    from indelible.verification.suspects import ModuleSuspect

    asked = round(verdict.counts.get("carriers", 0.0))
    if verdict.owned or verdict.procedure != "codebook":
        return []
    if isinstance(suspect, ModuleSuspect):
        said = "You hold the suspect's weights: --test relearning may bring back marks that an attack has silenced."
    elif asked < images:
        more = min(images, 5 * asked)
        said = f"A weak mark shows on more images: --carriers {more} asks each mark on that many instead of {asked}."
    else:
        return []
    return [f"{said} It is a second try, so compare its p with half of alpha, {verdict.alpha / 2:g}."]


def _asked_about(arguments: argparse.Namespace) -> "tuple[indelible.Run | None, indelible.Key, Data]":
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
    if arguments.carriers is not None:
        if not 0 < arguments.carriers <= len(test):
            raise InputError(f"--carriers must be 1..{len(test)}, the test images, got {arguments.carriers}.")
        if key.labels != "codebook":
            test = test.gather(key.choose("test images", len(test), arguments.carriers).sort().values)
        elif arguments.queries is None:
            arguments.queries = arguments.carriers * len(key.codebook())
    return saved, key, test


def _suspect(arguments: argparse.Namespace, saved: "indelible.Run | None", key: "indelible.Key") -> "Suspect":
    from indelible.attacks import deployed
    from indelible.verification import as_suspect

    if arguments.suspect is not None or saved is None:
        return asked_suspect(arguments, key.classes, key.shape, saved)
    # A thief's pre-processing is part of the suspect.
    model = deployed(saved.model(), saved.record, normalize=saved.normalize())
    return as_suspect(model, normalize=saved.normalize())


def _verdict(
    arguments: argparse.Namespace, suspect: "Suspect", key: "indelible.Key", test: "Data", options: dict[str, Any],
    plan: "SessionPlan | None",
) -> "indelible.Verdict":  # fmt: skip
    if arguments.log is None:
        return indelible.verify(suspect, key, test, **options)
    # The plan goes into the log: whoever counts again asks as much of it.
    about = {"key": key.digest} | ({} if plan is None else {"plan": plan.to_json()})
    log, budget = arguments.log, arguments.budget
    return indelible.verify_logged(suspect, key, test, log=log, budget=budget, about=about, **options)


def _export(arguments: argparse.Namespace, key: "indelible.Key", test: "Data", options: dict[str, Any]) -> int:
    import numpy as np

    from indelible.base.files import replacing
    from indelible.verification import planned
    from indelible.verification.careful_queries import order_seed

    if options.get("test") == "sequential":
        raise InputError("--export does not go with --test sequential, which decides after every answer.")
    plan = planned(lambda stand_in: indelible.verify(stand_in, key, test, **options), seed=order_seed(key))
    with replacing(arguments.export) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, images=plan.images.numpy(), digests=np.array(plan.digests))
    text = (
        f"wrote {arguments.export}: {len(plan)} images and their digests, shuffled. Answer them in a file .csv with "
        "the columns digest,label and give that as --suspect. Anyone who sees it learns the marks."
    )
    return emit(arguments, {"questions": str(arguments.export), "queries": len(plan)}, text)


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
    from indelible.bench.attack_suite import strongest
    from indelible.bench.measurement import of_run

    for name in _ALONE:
        if getattr(arguments, name):
            raise InputError(
                f"--runs verifies the models of runs: leave out {'RUN' if name == 'run_folder' else f'--{name}'}."
            )
    runs = []
    for folder in _found_runs(arguments.runs):
        one = argparse.Namespace(**{**vars(arguments), "runs": [], "run_folder": folder})
        with redirect_stdout(io.StringIO()):  # each would print its own result; here they are the rows of one table
            run(one)
        runs.append(indelible.Run.load(folder))
    verdicts = [one.verdict() or {} for one in runs]
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


def _table(runs: "Sequence[indelible.Run]", verdicts: Sequence[Mapping[str, Any]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table as RichTable

    from indelible.bench.make_run_folder import HELD_OUT
    from indelible.report.format import p_value, percent

    drawn = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
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
