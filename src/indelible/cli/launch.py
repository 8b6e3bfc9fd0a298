"""A command in several processes: started here for ``--devices``, or found under torchrun."""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indelible.train.processes import Group

__all__ = ["in_processes"]

Work = Callable[[argparse.Namespace, "Group"], None]


def in_processes(work: Work, arguments: argparse.Namespace) -> int:
    """Do ``work(arguments, group)`` in as many processes as the options ask for; the group's first one may speak."""
    from indelible.train.starting import must_start, spread

    if must_start(arguments.devices, arguments.nodes):
        with tempfile.TemporaryDirectory(prefix="indelible-") as name:
            devices, nodes = arguments.devices or 1, arguments.nodes or 1
            spread(partial(_inside, work, arguments), devices=devices, nodes=nodes, folder=Path(name))
    else:
        _inside(work, arguments)
    return 0


def _inside(work: Work, arguments: argparse.Namespace, _folder: Path | None = None) -> None:
    from indelible.train.processes import joined

    with joined(devices=arguments.devices, nodes=arguments.nodes, device=arguments.device) as group:
        work(arguments, group)
