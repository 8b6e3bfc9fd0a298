"""``indelible verify``: is this model derived from the owner's?"""

import argparse
from pathlib import Path

from indelible.cli.options import emit

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "decide whether a model carries a key's watermark (exit code 1 if that is not shown)"
EXAMPLES = [
    "indelible verify runs/app-ft",
    "indelible verify runs/app-ft --alpha 0.01 --queries 100",
    "indelible verify runs/somebody-elses --key my-key --json",
    "indelible verify runs/cw --certificate --sigma 0.05 --draws 200",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible verify``."""
    from indelible.cli import common

    command.add_argument("suspect", type=Path, metavar="RUN", help="folder of a run")
    command.add_argument("--key", type=Path, help="key folder (default: the run's own, or that of the run it attacks)")
    command.add_argument("--data", help="carriers: a data set whose test images are marked (default: the run's)")
    command.add_argument("--alpha", type=float, default=1e-6, help="level of the decision (default: 1e-6)")
    command.add_argument("--queries", type=int, help="key samples to ask (default: all the test images give)")
    command.add_argument(
        "--certificate", action="store_true", help="also certify the mark against changes of the weights (white box)"
    )
    command.add_argument("--sigma", type=float, default=1.0, help="weight noise of the certificate (default: 1)")
    command.add_argument("--draws", type=int, default=1000, help="noisy copies of the certificate (default: 1000)")
    command.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.attacks import deployed
    from indelible.cli.describe import describe_certificate, describe_verdict
    from indelible.data import load
    from indelible.keys import Key
    from indelible.train.devices import pinned_threads
    from indelible.train.run import Run
    from indelible.verify import certify, verify

    suspect = Run.load(arguments.suspect)
    key = suspect.key() if arguments.key is None else Key.load(arguments.key)
    _, test = load(arguments.data or suspect.data)
    normalize = suspect.normalize()
    with pinned_threads(arguments.threads):
        # A thief's pre-processing is part of the suspect.
        model = deployed(suspect.model(), suspect.record, normalize=normalize)
        verdict = verify(model, key, test, alpha=arguments.alpha, queries=arguments.queries, normalize=normalize)
        suspect.keep_verdict(verdict.to_json())
        document, text = verdict.to_json(), describe_verdict(verdict.to_json())
        if arguments.certificate:
            certificate = certify(
                suspect.model(), key, test, sigma=arguments.sigma, draws=arguments.draws, normalize=normalize
            ).to_json()
            document["certificate"], text = certificate, f"{text}\n{describe_certificate(certificate)}"
    emit(arguments, document, text)
    return 0 if verdict.owned else 1
