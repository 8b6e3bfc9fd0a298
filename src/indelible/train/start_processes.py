"""Starting the processes of a run, and bringing back what they made; :mod:`indelible.train.processes` is the group.

Every process is a fresh interpreter that gets its work pickled. Ctrl-C is passed on once, an error of ours in one of
them is raised here, and the result comes back through a file.
"""

import copy
import json
import os
import pickle
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from indelible.base.allocator import keep_freed_memory
from indelible.base.errors import IndelibleError, InputError
from indelible.base.files import read_tensors, write_tensors
from indelible.base.progress import silenced, wanted
from indelible.base.records import Record, plain
from indelible.train.processes import current, disconnect, launched, on_interrupt, rebuilt, surroundings

_GRACE_SECONDS = 60.0
_RESULT = "result.safetensors"


def must_start(devices: int | None, nodes: int | None) -> bool:
    """Tell whether processes have to be started: more than this one are wanted, and none were launched."""
    for what, asked in (("devices", devices), ("nodes", nodes)):
        if asked is not None and asked < 1:
            raise InputError(f"{what} must be at least 1, got {asked}.")
    return max(devices or 1, nodes or 1) > 1 and current().world == 1 and not launched()


def elsewhere(
    verb: Callable[..., Any], model: nn.Module, arguments: Mapping[str, Any], *, devices: int | None, nodes: int | None
) -> dict[str, Any]:
    """Call ``verb(model, **arguments)`` in ``devices`` new processes on each of ``nodes`` machines.

    Returns the model, history and record of its result; the model that was given stays as it is.
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
    if surroundings().local_rank == 0:
        meta = {"history": plain(list(result.history)), "record": result.record.to_json()}
        write_tensors(folder / _RESULT, result.model.state_dict(), meta)


def spread(work: Callable[[Path], None], *, devices: int, nodes: int = 1, folder: Path) -> None:
    """Do ``work(folder)`` in ``devices`` new processes that form a group; return when all are done.

    ``work`` is picklable: a function of a module, or a ``functools.partial`` of one. What is to come back, the first
    process of the machine writes into ``folder``, empty at first. This call is made on each of ``nodes`` machines. An
    error of ours in a process is raised here, KeyboardInterrupt once every process has finished its step.
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
        with on_interrupt(partial(_forward, context.pids())):
            while not context.join(grace_period=_GRACE_SECONDS):
                pass
    except ProcessRaisedException as error:
        _report(folder, devices)  # the cause, where another process said it better
        last = str(error).strip().splitlines()[-1]
        raise IndelibleError(f"process {error.error_index} of {devices} failed: {last}") from error
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
            raise KeyboardInterrupt if answer["error"] == "KeyboardInterrupt" else rebuilt(answer)


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
            f"{nodes} machines need a common address: set {', '.join(missing)} (NODE_RANK counts the machines "
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
    keep_freed_memory()
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
    disconnect()


def _forward(pids: list[int | None], number: int, _frame: Any) -> None:
    """Pass Ctrl-C on to the processes, which finish their step and stop."""
    for pid in pids:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
