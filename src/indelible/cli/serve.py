"""``indelible serve``: a run's model over HTTP, to try out verification over a network."""

import argparse
from pathlib import Path

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "serve a run's model over HTTP (Open Inference Protocol v2) until Ctrl-C, for trying out verification"
EXAMPLES = [
    "indelible serve runs/app-ft --port 8080",
    "indelible serve runs/app-ft --answer label --name classifier",
]


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible serve``."""
    from indelible.cli import common

    command.add_argument("served", type=Path, metavar="RUN", help="folder of a run")
    command.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: this machine only)")
    command.add_argument("--port", type=int, default=8080, help="0 takes a free one (default: 8080)")
    command.add_argument("--name", default="model", help="the model's name in its address (default: model)")
    command.add_argument(
        "--answer", default="probabilities", help="logits, probabilities or label (default: probabilities)"
    )
    command.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
    common(command)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.attacks import deployed
    from indelible.cli.options import emit
    from indelible.train.devices import pinned_threads
    from indelible.train.run import Run
    from indelible.verify.serving import ModelServer, Served

    saved = Run.load(arguments.served)
    normalize = saved.normalize()
    with pinned_threads(arguments.threads):
        served = Served(
            model=deployed(saved.model(), saved.record, normalize=normalize), name=arguments.name,
            shape=saved.architecture.shape, classes=saved.architecture.classes, normalize=normalize,
            answer=arguments.answer,
        )  # fmt: skip
        with ModelServer(served, host=arguments.host, port=arguments.port) as server:
            ask = f"indelible verify OWNER-RUN --suspect {server.url} --input dtype=uint8 --log queries.jsonl"
            emit(arguments, {"url": server.url}, f"serving {arguments.served} at {server.url}\nask it with: {ask}")
            _flush()
            server.serve_forever(poll_interval=0.2)
    return 0


def _flush() -> None:
    import sys

    sys.stdout.flush()
