"""One run in several processes: which group this one joins, and which process speaks for it.

The processes are started by ``torchrun``, or by a script with a group of its own; see docs/many-devices.md. Every
process does the whole run on its rows of each batch. The first one evaluates, writes and shows progress; all end with
the same weights.
"""

import atexit
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from indelible.base.errors import IndelibleError
from indelible.base.progress import silenced, wanted
from indelible.nn.collectives import alike, processes

# While the first process evaluates or writes a checkpoint, the others wait in a reduction.
_PATIENCE = timedelta(hours=2)
T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """The processes that train one model, seen by one of them."""

    rank: int = 0
    world: int = 1  # processes in all
    local_rank: int = 0
    devices: int = 1  # processes on each machine

    @property
    def first(self) -> bool:
        """Whether this process evaluates, writes and shows progress."""
        return self.rank == 0

    @property
    def nodes(self) -> int:
        """Machines."""
        return self.world // self.devices

    def to_json(self) -> dict[str, int]:
        """Return what a record says of it: nothing when one process does all."""
        return {} if self.world == 1 else {"devices": self.devices, "nodes": self.nodes}


ALONE = Group()
_state = {"group": ALONE}


def current() -> Group:
    """Return the group that a run belongs to at this moment."""
    return _state["group"]


def launched() -> Group:
    """Return the group that was started already, by torchrun or by a script of its own; :data:`ALONE` if none was."""
    rank, world = 0, 1
    if processes() > 1:
        rank, world = distributed.get_rank(), distributed.get_world_size()
    elif distributed.is_available() and distributed.is_torchelastic_launched():
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world == 1:
        return ALONE
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return Group(rank, world, int(os.environ.get("LOCAL_RANK", rank % devices)), devices)


@contextmanager
def on_interrupt(handle: Callable[[int, Any], None]) -> Iterator[None]:
    """Inside the block, Ctrl-C calls ``handle``; only the main thread gets it, so in others nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def joined(*, device: str = "auto") -> Iterator[Group]:
    """Inside the block, runs of this process belong to the group that was launched; without one, to itself alone.

    Processes other than the first are silent inside.
    """
    from indelible.train.devices import choose_device

    group = launched()
    if current().world > 1 or group is ALONE:
        yield current()
        return
    _state["group"] = group
    try:
        if not distributed.is_initialized():  # meet the others where torchrun's variables say
            place = choose_device(device)
            if place.type == "cuda":
                torch.cuda.set_device(place)
            # Functions of this module have the group as a default. Imported later, they would hold it for ever, and its
            # threads would outlive the interpreter: now and then a finished process then aborts.
            importlib.import_module("torch.distributed.nn.functional")
            distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_PATIENCE)
            atexit.register(disconnect)
        with silenced(not group.first or not wanted()):
            yield group
    finally:
        _state["group"] = ALONE


def disconnect() -> None:
    """Leave the group, if this process belongs to one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def from_first(compute: Callable[[], T]) -> T:
    """Return what ``compute`` gives in the first process, in all of them.

    An error of ours is raised in every process, so that none waits for the others in vain.
    """
    group = current()
    if group.world == 1:
        return compute()
    sent: list[Any] = [None, None]  # the value, or an error
    if group.first:
        try:
            sent[0] = compute()
        except IndelibleError as error:
            sent[1] = error
    distributed.broadcast_object_list(sent, 0, device=_place())
    if sent[1] is not None:
        raise sent[1]
    value: T = sent[0]
    return value


def agree(value: int) -> bool:
    """Tell whether all processes of the run have the same number."""
    return current().world == 1 or alike(torch.tensor([value], device=_place()))


def _place() -> torch.device:
    # NCCL moves only what lies on its device.
    return torch.device("cuda", current().local_rank) if distributed.get_backend() == "nccl" else torch.device("cpu")
