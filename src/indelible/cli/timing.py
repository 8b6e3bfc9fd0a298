"""The speed measurement for ``indelible bench run`` and ``indelible bench check``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.cli.options import emit

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SPEED", "check_speed_again", "measure_speed", "speed_options"]

SPEED = "speed"
BASELINE = Path("results") / "speed.json"


def speed_options(running: argparse.ArgumentParser, checking: argparse.ArgumentParser) -> None:
    """Add the options of the measurement, and all of those of the check."""
    for command in (running, checking):
        command.add_argument("--parts", help="speed: some of app,methods,memory,attacks,verify,grid (default: all)")
        command.add_argument("--networks", help="speed: networks, the CPU's last (default: resnet-18,resnet-mini)")
        command.add_argument("--batch-size", type=int, default=128, help="speed: images in a plain step (default: 128)")
        command.add_argument("--rounds", type=int, default=5, help="speed: how often each case is timed (default: 5)")
        command.add_argument("--again", action="store_true", help="speed: forget the rounds measured before")
    running.add_argument("--table", type=Path, help="speed: also write the tables there as Markdown")
    checking.add_argument("preset", choices=[SPEED], help="what to check")
    checking.add_argument("--store", default="bench", help="folder of the measured rounds (default: bench)")
    checking.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    checking.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    checking.add_argument(
        "--baseline", type=Path, default=BASELINE, help=f"document of committed ratios (default: {BASELINE})"
    )
    checking.add_argument("--tolerance", type=float, help="share that a ratio may exceed its baseline by")


def _entries(arguments: argparse.Namespace) -> "list[Mapping[str, Any]]":
    from indelible.base.errors import InputError
    from indelible.bench.speed import PARTS, choose_units, measure_units
    from indelible.bench.speed.run import NETWORKS
    from indelible.bench.speed.suite import pass_device
    from indelible.train.devices import pinned_threads

    if "://" in arguments.store:
        raise InputError(f"measured rounds are kept in a folder, but --store is {arguments.store!r}. Name a folder.")
    with pinned_threads(arguments.threads):
        units = choose_units(
            _words(arguments.parts, PARTS), _words(arguments.networks, NETWORKS), batch_size=arguments.batch_size,
            rounds=arguments.rounds, device=pass_device(arguments.device),
        )  # fmt: skip
        return measure_units(units, Path(arguments.store) / SPEED, again=arguments.again)


def _words(said: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    return default if said is None else tuple(word.strip() for word in said.split(",") if word.strip())


def measure_speed(arguments: argparse.Namespace) -> int:
    """Measure, write the document and the tables, print them."""
    from indelible.base.files import write_json, write_text
    from indelible.bench.speed import speed_document, speed_table

    entries = _entries(arguments)
    document, table = speed_document(entries, _command(arguments)), speed_table(entries)
    if arguments.out is not None:
        write_json(arguments.out, document)
    if arguments.table is not None:
        write_text(arguments.table, table + "\n")
    emit(arguments, document, table)
    return 0


def _command(arguments: argparse.Namespace) -> str:
    given = {name: getattr(arguments, name) for name in ("parts", "networks", "threads")}
    words = [f"--{name} {value}" for name, value in given.items() if value is not None]
    sizes = f"--batch-size {arguments.batch_size} --rounds {arguments.rounds}"
    return " ".join(["indelible bench run speed", *words, sizes])


def check_speed_again(arguments: argparse.Namespace) -> int:
    """Measure and compare; exit code 1 if a ratio is higher than its baseline or a promise allows."""
    from indelible.base.files import read_json
    from indelible.bench.speed import check_speed, speed_document
    from indelible.bench.speed.document import rows_of_document

    baseline = rows_of_document(read_json(arguments.baseline))
    rows = rows_of_document(speed_document(_entries(arguments), _command(arguments)))
    found = check_speed(rows, baseline, tolerance=arguments.tolerance)
    failed = [one for one in found if not one.holds]
    said = [one.sentence() for one in found]
    said.append(f"{len(found) - len(failed)} of {len(found)} ratios are within what is allowed")
    document = {
        "holds": not failed,
        "findings": [
            {"row": list(one.row.name), "ratio": one.row.ratio, "allowed": one.allowed, "why": one.why,
             "holds": one.holds}
            for one in found
        ],
    }  # fmt: skip
    emit(arguments, document, "\n".join(said))
    return 1 if failed or not found else 0
