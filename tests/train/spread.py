"""Two processes as torchrun starts them, without its start of some seconds for each test."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import torch
from torch.multiprocessing.spawn import start_processes

from indelible.base.progress import silenced
from indelible.train.processes import disconnect

__all__ = ["free_port", "spread"]


def spread(work: Callable[[Path], None], folder: Path, *, devices: int) -> None:
    """Do ``work(folder)`` in ``devices`` new processes; what they find they write to the folder.

    An error in one of them ends all, and is raised here.
    """
    start_processes(_process, (work, folder, devices, free_port()), devices)


def free_port() -> int:
    """Return a port at which the processes can meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _process(index: int, work: Callable[[Path], None], folder: Path, devices: int, port: int) -> None:
    """One of the processes, from its start to its end."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="tests")
    os.environ.update(RANK=str(index), LOCAL_RANK=str(index), WORLD_SIZE=str(devices), LOCAL_WORLD_SIZE=str(devices))
    with silenced():
        work(folder)
    disconnect()
