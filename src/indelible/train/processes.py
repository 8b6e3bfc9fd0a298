"""One run in several processes: who belongs to the group, and who speaks for it.

Processes are started by :mod:`indelible.train.start_processes`, by ``torchrun`` or by a script's own group:

| situation | ``devices`` | what happens |
|---|---|---|
| nothing launched | None or 1 | this process alone |
| nothing launched | N > 1 | N processes are started here; the result comes back to the caller through a file |
| nothing launched, ``nodes`` > 1 | N | the same on each machine; MASTER_ADDR, MASTER_PORT, NODE_RANK say who is who |
| under ``torchrun``, or in a group that is there already | None or its size | this process joins |
| the same | 1 | this process alone |

Every process does the whole run on its rows of each batch. The first one evaluates, writes and shows progress; all end
with the same weights.
"""

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from indelible.base import errors
from indelible.base.errors import IndelibleError, InputError
from indelible.base.progress import silenced, wanted
from indelible.nn.collectives import alike, processes

# While the first process evaluates or writes a checkpoint, the others wait in a reduction.
_PATIENCE = timedelta(hours=2)


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


def launched() -> bool:
    """Tell whether several processes were started already: torchrun, or a script with a group of its own."""
    if processes() > 1:
        return True
    elastic = distributed.is_available() and distributed.is_torchelastic_launched()
    return elastic and int(os.environ.get("WORLD_SIZE", "1")) > 1


def surroundings() -> Group:
    """Read which process this is from an existing group, or from torchrun's variables."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if processes() > 1:
        rank, world = distributed.get_rank(), distributed.get_world_size()
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    return Group(rank, world, int(os.environ.get("LOCAL_RANK", str(rank % devices))), devices)


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
def joined(*, devices: int | None = None, nodes: int | None = None, device: str = "auto") -> Iterator[Group]:
    """Inside the block, runs of this process belong to the group that was launched; without one, to itself alone.

    Processes other than the first are silent inside.
    """
    if current().world > 1 or devices == 1 or not launched():
        yield current()
        return
    group = surroundings()
    for what, asked, there in (("devices", devices, group.devices), ("nodes", nodes, group.nodes)):
        if asked is not None and asked != there:
            raise InputError(
                f"got {what}={asked}, but {group.world} processes were launched on {group.nodes} machine(s). "
                f"Leave {what} out, or launch as many."
            )
    _state["group"] = group
    try:
        if not distributed.is_initialized():
            _connect(device)
        with silenced(not group.first or not wanted()):
            yield group
    finally:
        _state["group"] = ALONE


def _connect(device: str) -> None:
    """Meet the other processes where torchrun's variables say."""
    from indelible.train.devices import choose_device

    place = choose_device(device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    distributed.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=_PATIENCE)
    atexit.register(disconnect)


def disconnect() -> None:
    """Leave the group, if this process belongs to one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def from_first(compute: Callable[[], Any]) -> Any:
    """Return what ``compute`` gives in the first process, in all of them.

    An error of ours is raised in every process, so that none waits for the others in vain.
    """
    group = current()
    if group.world == 1:
        return compute()
    answer: dict[str, Any] = {}
    if group.first:
        try:
            answer["value"] = compute()
        except IndelibleError as error:
            answer |= {"error": type(error).__name__, "message": str(error)}
    sent = [answer]
    distributed.broadcast_object_list(sent, 0, device=_place())
    if "error" in sent[0]:
        raise rebuilt(sent[0])
    return sent[0]["value"]


def agree(value: int) -> bool:
    """Tell whether all processes of the run have the same number."""
    return current().world == 1 or alike(torch.tensor([value], device=_place()))


def _place() -> torch.device:
    # NCCL moves only what lies on its device.
    return torch.device("cuda", current().local_rank) if distributed.get_backend() == "nccl" else torch.device("cpu")


def rebuilt(answer: Mapping[str, str]) -> IndelibleError:
    """Return the error of ours that another process named by ``error`` and ``message``."""
    kind = getattr(errors, answer["error"], IndelibleError)
    # UnknownNameError builds its message from parts; its parent takes the finished one.
    made: IndelibleError = (InputError if kind is errors.UnknownNameError else kind)(answer["message"])
    return made
