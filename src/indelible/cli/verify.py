"""``indelible verify``: is this model derived from the owner's?"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.cli.deciding import (
    deciding_options,
    decision,
    in_family,
    number_or_all,
    planned_session,
    show_plan,
)
from indelible.cli.options import emit
from indelible.cli.suspects import asked_suspect, asking_options
from indelible.cli.verify_runs import verify_runs

if TYPE_CHECKING:
    from indelible.data.images import Data
    from indelible.keys import Key
    from indelible.train.run import Run
    from indelible.verify import SessionPlan, Suspect, Verdict

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

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


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible verify``."""
    from indelible.cli import common

    command.add_argument(
        "run_folder", type=Path, metavar="RUN", nargs="?",
        help="folder of a run: the suspect, or with --suspect the owner's run, for key, data and architecture",
    )  # fmt: skip
    command.add_argument(
        "--runs",
        nargs="+",
        metavar="RUN",
        help="several runs, as folders or a pattern: a verdict for each, and a table",
    )
    command.add_argument(
        "--ba-drop", type=float, default=2.0, metavar="POINTS",
        help="with --runs: accuracy that the strongest attack may have cost, in percentage points (default: 2)",
    )  # fmt: skip
    command.add_argument("--key", type=Path, help="key folder (default: the run's own, or that of the run it attacks)")
    command.add_argument("--data", help="carriers: a data set whose test images are marked (default: the run's)")
    command.add_argument("--alpha", type=float, default=1e-6, help="level of the decision (default: 1e-6)")
    command.add_argument(
        "--queries", type=number_or_all, metavar="N", help="key samples to ask (default: all; of a server, as planned)"
    )
    deciding_options(command)
    command.add_argument(
        "--carriers",
        type=int,
        metavar="N",
        help="mark only N test images, which the key chooses: fewer queries (default of a codebook: 200)",
    )
    command.add_argument("--accuracy", action="store_true", help="ask a --suspect for BA too: one query a test image")
    command.add_argument("--export", type=Path, metavar="NPZ", help="write the questions for somebody else to answer")
    asking_options(command, unless="the run's own model")
    command.add_argument(
        "--certificate", action="store_true", help="also certify the mark against changes of the weights (white box)"
    )
    command.add_argument("--sigma", type=float, default=1.0, help="weight noise of the certificate (default: 1)")
    command.add_argument("--draws", type=int, default=1000, help="noisy copies of the certificate (default: 1000)")
    command.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.plan or arguments.runs:
        return show_plan(arguments) if arguments.plan else verify_runs(arguments, run)
    from indelible.base.errors import InputError
    from indelible.base.progress import wanted
    from indelible.cli.describe import describe_certificate, describe_verdict
    from indelible.train.devices import pinned_threads

    saved, key, test = _asked_about(arguments)
    own = arguments.suspect is None
    options: dict[str, Any] = decision(arguments)
    owner = None
    if key.labels == "keyed":
        if saved is None:
            raise InputError("keyed labels are asked on embedded samples: name the owner's run, or one made from it.")
        owner = saved.images()[0]
        options["embedded"] = key.questions(owner, None)
    options["accuracy"] = own or arguments.accuracy
    with pinned_threads(arguments.threads):
        if arguments.export is not None:
            return _export(arguments, key, test, options)
        suspect = _suspect(arguments, saved, key)
        plan = planned_session(arguments, suspect, key, test, options.get("embedded"))
        if plan is not None:
            options |= plan.options
            if wanted():
                print(plan.sentence, file=sys.stderr)
        verdict = in_family(_verdict(arguments, suspect, key, test, options, plan), arguments.family)
        document, text = verdict.to_json(), describe_verdict(verdict.to_json())
        if plan is not None:
            document["plan"] = plan.to_json()
        if own and saved is not None:
            saved.keep_verdict(document)
        if arguments.certificate and own and saved is not None:
            from indelible.verify import certify

            certificate = certify(
                saved.model(),
                key,
                owner or test,
                sigma=arguments.sigma,
                draws=arguments.draws,
                normalize=saved.normalize(),
            ).to_json()
            document, text = {**document, "certificate": certificate}, f"{text}\n{describe_certificate(certificate)}"
    emit(arguments, document, text)
    return 0 if verdict.owned else 1


def _asked_about(arguments: argparse.Namespace) -> "tuple[Run | None, Key, Data]":
    from indelible.base.errors import InputError
    from indelible.data import load
    from indelible.keys import Key
    from indelible.train.run import Run

    saved = None if arguments.run_folder is None else Run.load(arguments.run_folder)
    if saved is None and (
        arguments.key is None or arguments.data is None or not (arguments.suspect or arguments.export)
    ):
        raise InputError("name a run, or --suspect PLACE with --key FOLDER and --data NAME.")
    if arguments.certificate and arguments.suspect is not None:
        raise InputError("a certificate is of weights: give the run alone, without --suspect.")
    if arguments.budget is not None and arguments.log is None:
        raise InputError("--budget counts over sessions: it needs --log FILE.")
    key = saved.key() if saved is not None and arguments.key is None else Key.load(arguments.key)
    _, test = load(arguments.data or (saved.data if saved is not None else ""))
    if arguments.carriers is not None:
        if not 0 < arguments.carriers <= len(test):
            raise InputError(f"--carriers must be 1..{len(test)}, the test images, but is {arguments.carriers}.")
        if key.labels != "codebook":
            test = test.gather(key.choose("test images", len(test), arguments.carriers).sort().values)
        elif arguments.queries is None:
            arguments.queries = arguments.carriers * len(key.codebook())
    return saved, key, test


def _suspect(arguments: argparse.Namespace, saved: "Run | None", key: "Key") -> "Suspect":
    from indelible.attacks import deployed
    from indelible.verify import as_suspect

    if arguments.suspect is not None or saved is None:
        return asked_suspect(arguments, key.classes, key.shape, saved)
    # A thief's pre-processing is part of the suspect.
    model = deployed(saved.model(), saved.record, normalize=saved.normalize())
    return as_suspect(model, normalize=saved.normalize())


def _verdict(
    arguments: argparse.Namespace, suspect: "Suspect", key: "Key", test: "Data", options: dict[str, Any],
    plan: "SessionPlan | None",
) -> "Verdict":  # fmt: skip
    from indelible.verify import verify, verify_logged

    if arguments.log is None:
        return verify(suspect, key, test, **options)
    # The plan goes into the log: whoever counts again asks as much of it.
    about = {"key": key.digest} | ({} if plan is None else {"plan": plan.to_json()})
    return verify_logged(suspect, key, test, log=arguments.log, budget=arguments.budget, about=about, **options)


def _export(arguments: argparse.Namespace, key: "Key", test: "Data", options: dict[str, Any]) -> int:
    import numpy as np

    from indelible.base.errors import InputError
    from indelible.base.files import replacing
    from indelible.verify import planned, verify
    from indelible.verify.asking import order_seed

    if options.get("test") == "sequential":
        raise InputError("a sequential test decides as it goes: its questions cannot be written down before.")
    plan = planned(lambda stand_in: verify(stand_in, key, test, **options), seed=order_seed(key))
    with replacing(arguments.export) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, images=plan.images.numpy(), digests=np.array(plan.digests))
    text = (
        f"wrote {arguments.export}: {len(plan)} images and their digests, shuffled. Answer them in a file .csv with "
        "the columns digest,label and give that as --suspect. The marks are in it: to whom it is shown, they are known."
    )
    emit(arguments, {"questions": str(arguments.export), "queries": len(plan)}, text)
    return 0
