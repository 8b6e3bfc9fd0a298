"""One run in several processes: who starts them, who belongs to the group, and who speaks for it.

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

import copy
import json
import logging
import os
import pickle
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from indelible.base import errors
from indelible.base.errors import IndelibleError, InputError
from indelible.base.files import read_tensors, write_tensors
from indelible.base.progress import silenced, wanted
from indelible.base.records import Record, plain
from indelible.nn.collectives import processes

__all__ = [
    "ALONE",
    "Group",
    "agree",
    "current",
    "elsewhere",
    "from_first",
    "joined",
    "launched",
    "must_start",
    "spread",
]

_GRACE_SECONDS = 60.0
_RESULT = "result.safetensors"


@dataclass(frozen=True)
class Group:
    """The processes that train one model, seen by one of them.

    Attributes:
        rank: Which process this is, from 0.
        world: How many there are.
        local_rank: Which process of its machine this is.
        devices: Processes on each machine.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    devices: int = 1

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
    """Tell whether somebody has started several processes already: torchrun, or a script with a group of its own."""
    if processes() > 1:
        return True
    elastic = distributed.is_available() and distributed.is_torchelastic_launched()
    return elastic and int(os.environ.get("WORLD_SIZE", "1")) > 1


def _surroundings() -> Group:
    """Read which process this is from an existing group, or from torchrun's variables."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if processes() > 1:
        rank, world = distributed.get_rank(), distributed.get_world_size()
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    return Group(rank, world, int(os.environ.get("LOCAL_RANK", str(rank % devices))), devices)


@contextmanager
def joined(*, devices: int | None = None, nodes: int | None = None, device: str = "auto") -> Iterator[Group]:
    """Inside the block, runs of this process belong to the group that was launched; without one, to itself alone.

    Processes other than the first are silent inside.
    """
    if current().world > 1 or devices == 1 or not launched():
        yield current()
        return
    group = _surroundings()
    for what, asked, there in (("devices", devices, group.devices), ("nodes", nodes, group.nodes)):
        if asked is not None and asked != there:
            raise InputError(
                f"{what}={asked} was asked for, but {group.world} processes were launched on {group.nodes} machine(s). "
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
    from indelible.train.devices import import_fabric, make_fabric

    import_fabric()  # sets the level of its log
    # Fabric announces the group on the log; the progress of the run says enough.
    logger = logging.getLogger("lightning_fabric")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        make_fabric(device=device)
    finally:
        logger.setLevel(before)


def from_first(compute: Callable[[], Any]) -> Any:
    """Return what ``compute`` gives in the first process, in all of them; it must be plain JSON.

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
    place = _place()
    content = torch.tensor(list(json.dumps(answer).encode()), dtype=torch.uint8, device=place)
    size = torch.tensor([len(content)], device=place)
    distributed.broadcast(size, 0)
    if not group.first:
        content = torch.empty(int(size), dtype=torch.uint8, device=place)
    distributed.broadcast(content, 0)
    answer = json.loads(bytes(content.tolist()))
    if "error" in answer:
        raise _rebuilt(answer)
    return answer["value"]


def agree(value: int) -> bool:
    """Tell whether all processes of the run came with the same number."""
    if current().world == 1:
        return True
    ends = torch.tensor([value, -value], device=_place())
    distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
    highest, lowest = ends.tolist()
    return bool(highest == -lowest)


def _place() -> torch.device:
    # NCCL moves only what lies on its device.
    return torch.device("cuda", current().local_rank) if distributed.get_backend() == "nccl" else torch.device("cpu")


def _rebuilt(answer: Mapping[str, str]) -> IndelibleError:
    kind = getattr(errors, answer["error"], IndelibleError)
    # UnknownNameError builds its message from parts; its parent takes the finished one.
    made: IndelibleError = (InputError if kind is errors.UnknownNameError else kind)(answer["message"])
    return made


def must_start(devices: int | None, nodes: int | None) -> bool:
    """Tell whether processes have to be started: more than this one are wanted, and none were launched."""
    for what, asked in (("devices", devices), ("nodes", nodes)):
        if asked is not None and asked < 1:
            raise InputError(f"{what} must be at least 1, but is {asked}.")
    return max(devices or 1, nodes or 1) > 1 and current().world == 1 and not launched()


def elsewhere(
    verb: Callable[..., Any], model: nn.Module, arguments: Mapping[str, Any], *, devices: int | None, nodes: int | None
) -> dict[str, Any]:
    """Call ``verb(model, **arguments)`` in new processes and bring back its model, history and record.

    Args:
        verb: A function of a module, whose result has ``model``, ``history`` and ``record``.
        model: The model to work on; it stays as it is.
        arguments: The other arguments, picklable.
        devices: Processes on this machine.
        nodes: Machines.
    """
    sent = copy.deepcopy(model).cpu()
    with tempfile.TemporaryDirectory(prefix="indelible-") as name:
        folder = Path(name)
        spread(partial(_verb, verb, sent, arguments), devices=devices or 1, nodes=nodes or 1, folder=folder)
        tensors, meta = read_tensors(folder / _RESULT)
    made = copy.deepcopy(model)
    kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(kinds) == 1:
        made.to(kinds.pop())  # a run in double precision gives a model in double precision
    made.load_state_dict(tensors)
    return {"model": made, "history": tuple(meta["history"]), "record": Record.from_json(meta["record"])}


def _verb(verb: Callable[..., Any], model: nn.Module, arguments: Mapping[str, Any], folder: Path) -> None:
    result = verb(model, **arguments)
    if _surroundings().local_rank == 0:
        meta = {"history": plain(list(result.history)), "record": result.record.to_json()}
        write_tensors(folder / _RESULT, result.model.state_dict(), meta)


def spread(work: Callable[[Path], None], *, devices: int, nodes: int = 1, folder: Path) -> None:
    """Do ``work(folder)`` in ``devices`` new processes that form a group; return when all are done.

    Args:
        work: Picklable: a function of a module, or a ``functools.partial`` of one. Whatever is to come back, the first
            process of the machine writes into the folder.
        devices: Processes on this machine.
        nodes: Machines; this call is made on each of them.
        folder: An empty folder for what comes back.

    Raises:
        IndelibleError: One of ours, raised in a process.
        KeyboardInterrupt: After Ctrl-C, once every process has finished its step.
    """
    variables = _rendezvous(nodes)
    threads = max(1, torch.get_num_threads() // devices)
    from torch.multiprocessing.spawn import ProcessRaisedException, start_processes

    try:
        context: Any = start_processes(
            _process, (work, folder, devices, nodes, variables, threads, not wanted()), devices, join=False
        )
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise InputError(
            f"the model or the data cannot be sent to other processes ({error}). Define their classes in a module, or "
            "start the script with torchrun."
        ) from error
    try:
        with _forwarding(context.pids()):
            while not context.join(grace_period=_GRACE_SECONDS):
                pass
    except ProcessRaisedException as error:
        _report(folder, devices)  # the cause, where another process said it better
        last = str(error).strip().splitlines()[-1]
        raise IndelibleError(f"process {error.error_index} of {devices} broke off: {last}") from error
    finally:
        for process in context.processes:
            if process.is_alive():
                process.terminate()
    _report(folder, devices)


def _report(folder: Path, devices: int) -> None:
    """Raise here what a process has refused."""
    for index in range(devices):
        path = folder / f"failed-{index}.json"
        if path.exists():
            answer = json.loads(path.read_text(encoding="utf-8"))
            raise KeyboardInterrupt if answer["error"] == "KeyboardInterrupt" else _rebuilt(answer)


def _rendezvous(nodes: int) -> dict[str, str]:
    """Return where the processes meet."""
    if nodes == 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    names = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise InputError(
            f"{nodes} machines need to know where they meet: set {', '.join(missing)} (NODE_RANK counts the machines "
            "from 0), or start with torchrun."
        )
    return {name: os.environ[name] for name in names}


def _process(
    index: int, work: Callable[[Path], None], folder: Path, devices: int, nodes: int, variables: Mapping[str, str],
    threads: int, silent: bool,
) -> None:  # fmt: skip
    """One of the processes, from its start to its end."""
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C reaches the caller alone, which passes it on once
    torch.set_num_threads(threads)
    rank = int(variables["NODE_RANK"]) * devices + index
    os.environ.update(variables)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(devices * nodes), LOCAL_RANK=str(index))
    os.environ.update(LOCAL_WORLD_SIZE=str(devices), TORCHELASTIC_RUN_ID="indelible")
    problem: dict[str, str] | None = None
    try:
        with silenced(silent):
            work(folder)
    except IndelibleError as error:
        problem = {"error": type(error).__name__, "message": str(error)}
    except KeyboardInterrupt:
        problem = {"error": "KeyboardInterrupt", "message": ""}
    if problem is not None:
        (folder / f"failed-{index}.json").write_text(json.dumps(problem), encoding="utf-8")
    if distributed.is_initialized():
        distributed.destroy_process_group()


@contextmanager
def _forwarding(pids: list[int | None]) -> Iterator[None]:
    """Pass Ctrl-C on to the processes, which finish their step and stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def forward(number: int, _frame: Any) -> None:
        for pid in pids:
            if pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    before = signal.signal(signal.SIGINT, forward)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
