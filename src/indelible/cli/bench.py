"""``indelible bench``: measurements by name."""

import argparse
from pathlib import Path

from indelible.cli.options import emit

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "measure: seconds a step of each method, side by side"
EXAMPLES = [
    "indelible bench list",
    "indelible bench run speed",
    "indelible bench run speed --model resnet-18 --rounds 3 --out speed.json",
]
PRESETS = {"speed": "seconds a step: plain training, the c-BN control, APP, and the data pipeline alone"}


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible bench``."""
    from indelible.cli import common

    actions = command.add_subparsers(dest="action", required=True, metavar="list|run")
    listing = actions.add_parser("list", help="what can be measured")
    running = actions.add_parser("run", help="measure")
    running.add_argument("preset", help="what to measure: speed")
    running.add_argument("--model", default="resnet-w16", help="network (default: resnet-w16)")
    running.add_argument("--batch-size", type=int, default=128, help="images in a plain step (default: 128)")
    running.add_argument("--rounds", type=int, default=5, help="how often each case is timed (default: 5)")
    running.add_argument("--threads", type=int, help="CPU threads to compute with (default: torch's choice)")
    running.add_argument("--out", type=Path, help="also write the result there as JSON")
    for action in (listing, running):
        common(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.action == "list":
        emit(arguments, PRESETS, "\n".join(f"{name:8} {summary}" for name, summary in PRESETS.items()))
        return 0
    from indelible.base.errors import InputError, UnknownNameError
    from indelible.base.files import write_json
    from indelible.base.records import plain
    from indelible.bench.speed import measure_speed
    from indelible.train.devices import pinned_threads

    if arguments.preset not in PRESETS:
        raise UnknownNameError("preset", arguments.preset, PRESETS)
    if arguments.rounds < 1:
        raise InputError(f"--rounds must be at least 1, but is {arguments.rounds}.")
    with pinned_threads(arguments.threads):
        speed = measure_speed(arguments.model, batch_size=arguments.batch_size, rounds=arguments.rounds)
    if arguments.out is not None:
        write_json(arguments.out, plain(speed))
    lines = [f"{speed.model}, batch {speed.batch_size}, {speed.threads} thread(s), {speed.rounds} rounds"]
    for name, seconds in speed.seconds.items():
        low, high = speed.spread[name]
        lines.append(f"{name:18} {1000 * seconds:8.1f} ms  {speed.ratio[name]:5.2f}x plain  ({low:.2f} - {high:.2f})")
    emit(arguments, plain(speed), "\n".join(lines))
    return 0
