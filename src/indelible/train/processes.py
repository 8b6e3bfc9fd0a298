"""One run in several processes: who starts them, who belongs to the group, and who speaks for it.

docs/many-devices.md says when processes are started here, and when this one joins those of ``torchrun`` or of a
script's own group. Every process does the whole run on its rows of each batch. The first one evaluates, writes and
shows progress; all end with the same weights.
"""

import atexit
import copy
import importlib
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import torch
from torch import distributed, multiprocessing, nn
from torch.multiprocessing.spawn import ProcessRaisedException, start_processes

from indelible.base.errors import IndelibleError, InputError
from indelible.base.files import read_tensors, write_tensors
from indelible.base.progress import silenced, wanted
from indelible.base.records import Record, plain
from indelible.nn.collectives import alike, processes

# While the first process evaluates or writes a checkpoint, the others wait in a reduction.
_PATIENCE = timedelta(hours=2)
_GRACE_SECONDS = 60.0
_RESULT = "result.safetensors"
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
def joined(*, devices: int | None = None, device: str = "auto") -> Iterator[Group]:
    """Inside the block, runs of this process belong to the group that was launched; without one, to itself alone.

    Processes other than the first are silent inside.
    """
    from indelible.train.devices import choose_device

    group = launched()
    if current().world > 1 or devices == 1 or group is ALONE:
        yield current()
        return
    if devices is not None and devices != group.devices:
        raise InputError(
            f"got devices={devices}, but {group.world} processes were launched on {group.nodes} machine(s). "
            "Leave devices out, or launch as many."
        )
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


def must_start(devices: int | None) -> TypeGuard[int]:
    """Tell whether processes have to be started: more than this one are wanted, and none were launched."""
    if devices is not None and devices < 1:
        raise InputError(f"devices must be at least 1, got {devices}.")
    return (devices or 1) > 1 and current().world == 1 and launched() is ALONE


def elsewhere(
    verb: Callable[..., Any], model: nn.Module, arguments: Mapping[str, Any], *, devices: int
) -> dict[str, Any]:
    """Call ``verb(model, **arguments)`` in ``devices`` new processes.

    Returns the model, history and record of its result; the model that was given stays as it is.
    """
    sent = copy.deepcopy(model).cpu()
    with tempfile.TemporaryDirectory(prefix="indelible-") as name:
        folder = Path(name)
        spread(partial(_verb, verb, sent, arguments, folder), devices=devices)
        tensors, meta = read_tensors(folder / _RESULT)
    made = copy.deepcopy(model)
    kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(kinds) == 1:
        made.to(kinds.pop())  # a run in double precision gives a model in double precision
    made.load_state_dict(tensors)
    return {"model": made, "history": tuple(meta["history"]), "record": Record.from_json(meta["record"])}


def _verb(verb: Callable[..., Any], model: nn.Module, arguments: Mapping[str, Any], folder: Path) -> None:
    result = verb(model, **arguments)
    if launched().first:
        meta = {"history": plain(list(result.history)), "record": result.record.to_json()}
        write_tensors(folder / _RESULT, result.model.state_dict(), meta)


def do_in_group(work: Callable[[], None], devices: int | None) -> None:
    """Do ``work()`` in every process of the group; ``devices`` processes are started if none were launched."""
    if must_start(devices):
        spread(work, devices=devices)
    else:
        work()


def spread(work: Callable[[], None], *, devices: int) -> None:
    """Do ``work()`` in ``devices`` new processes that form a group; return when all are done.

    Every process is a fresh interpreter that gets its work pickled: a function of a module, or a ``functools.partial``
    of one. An error of ours in a process is raised here, KeyboardInterrupt once every process has finished its step.
    """
    refusals: Any = multiprocessing.get_context("spawn").SimpleQueue()
    threads = max(1, torch.get_num_threads() // devices)
    given = (work, devices, _free_port(), threads, not wanted(), refusals)
    try:
        context: Any = start_processes(_process, given, devices, join=False)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise InputError(
            f"the model or the data cannot be sent to other processes ({error}). Define their classes in a module, or "
            "start the script with torchrun."
        ) from error
    try:
        with on_interrupt(partial(_forward, context.pids())):
            while not context.join(grace_period=_GRACE_SECONDS):
                pass
    except ProcessRaisedException as error:
        if refusals.empty():  # else another process says the cause better
            last = str(error).strip().splitlines()[-1]
            raise IndelibleError(f"process {error.error_index} of {devices} failed: {last}") from error
    if not refusals.empty():
        raise refusals.get()


def _free_port() -> int:
    """Return a port at which the processes can meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _process(
    index: int, work: Callable[[], None], devices: int, port: int, threads: int, silent: bool, refusals: Any
) -> None:  # fmt: skip
    """One of the processes, from its start to its end."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C reaches the caller alone, which passes it on once
    torch.set_num_threads(threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="indelible")
    os.environ.update(RANK=str(index), LOCAL_RANK=str(index), WORLD_SIZE=str(devices), LOCAL_WORLD_SIZE=str(devices))
    try:
        with silenced(silent):
            work()
    except (IndelibleError, KeyboardInterrupt) as error:
        refusals.put(error)
    disconnect()


def _forward(pids: list[int | None], number: int, _frame: Any) -> None:
    """Pass Ctrl-C on to the processes, which finish their step and stop."""
    for pid in pids:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
