"""``indelible verify``: is this model derived from the owner's?"""

import argparse
from pathlib import Path

from indelible.cli.deciding import deciding_options, decision, in_family, show_plan
from indelible.cli.options import emit

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "decide whether a model carries a key's watermark (exit code 1 if that is not shown)"
EXAMPLES = [
    "indelible verify runs/app-ft",
    "indelible verify runs/app-ft --alpha 0.01 --queries 100",
    "indelible verify runs/somebody-elses --key my-key --json",
    "indelible verify runs/app-ft --test sequential",
    "indelible verify runs/app-ft --family runs/vanilla-ft --family runs/ew-ft",
    "indelible verify --plan --wsr 0.3 --null-rate 0.11",
    "indelible verify runs/cw --certificate --sigma 0.05 --draws 200",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible verify``."""
    from indelible.cli import common

    command.add_argument("suspect", type=Path, metavar="RUN", nargs="?", help="folder of a run")
    command.add_argument("--key", type=Path, help="key folder (default: the run's own, or that of the run it attacks)")
    command.add_argument("--data", help="carriers: a data set whose test images are marked (default: the run's)")
    command.add_argument("--alpha", type=float, default=1e-6, help="level of the decision (default: 1e-6)")
    command.add_argument("--queries", type=int, help="key samples to ask (default: all there are)")
    deciding_options(command)
    command.add_argument(
        "--certificate", action="store_true", help="also certify the mark against changes of the weights (white box)"
    )
    command.add_argument("--sigma", type=float, default=1.0, help="weight noise of the certificate (default: 1)")
    command.add_argument("--draws", type=int, default=1000, help="noisy copies of the certificate (default: 1000)")
    command.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.plan:
        return show_plan(arguments)
    from indelible.attacks import deployed
    from indelible.base.errors import InputError
    from indelible.cli.describe import describe_certificate, describe_verdict
    from indelible.data import load
    from indelible.keys import Key
    from indelible.train.devices import pinned_threads
    from indelible.train.run import Run
    from indelible.verify import certify, verify

    if arguments.suspect is None:
        raise InputError("name the run to verify, or ask for a plan: indelible verify --plan --wsr 0.5")
    suspect = Run.load(arguments.suspect)
    key = suspect.key() if arguments.key is None else Key.load(arguments.key)
    _, test = load(arguments.data or suspect.data)
    normalize = suspect.normalize()
    with pinned_threads(arguments.threads):
        # A thief's pre-processing is part of the suspect.
        model = deployed(suspect.model(), suspect.record, normalize=normalize)
        embedded = key.questions(suspect.images()[0], None) if key.labels == "keyed" else None
        verdict = verify(model, key, test, embedded=embedded, normalize=normalize, **decision(arguments))
        verdict = in_family(verdict, arguments.family)
        suspect.keep_verdict(verdict.to_json())
        document, text = verdict.to_json(), describe_verdict(verdict.to_json())
        if arguments.certificate:
            carriers = suspect.images()[0] if key.labels == "keyed" else test
            certificate = certify(
                suspect.model(), key, carriers, sigma=arguments.sigma, draws=arguments.draws, normalize=normalize
            ).to_json()
            document["certificate"], text = certificate, f"{text}\n{describe_certificate(certificate)}"
    emit(arguments, document, text)
    return 0 if verdict.owned else 1
