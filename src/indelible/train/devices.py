"""Devices, precision and processes, through Lightning Fabric; threads pinned so that processes do not fight."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from indelible.base.errors import InputError
from indelible.train.processes import current

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["choose_precision", "import_fabric", "make_fabric", "pinned_threads"]


def choose_precision(precision: str, accelerator: str) -> str:
    """Return the precision to use: ``"auto"`` is bfloat16 on GPUs that have it, float32 elsewhere.

    CPUs emulate bfloat16 unless they have it in hardware, at a tenth of the speed.
    """
    if precision != "auto":
        return precision
    return "bf16-mixed" if accelerator == "cuda" and torch.cuda.is_bf16_supported() else "32-true"


def import_fabric() -> "type[Fabric]":
    """Import Lightning Fabric, without the announcements of the modules that its import touches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightning_fabric import Fabric
    return Fabric


def make_fabric(*, device: str = "auto", precision: str = "auto") -> "Fabric":
    """Return a Fabric for this process on ``device`` (``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``).

    In a group of processes (:mod:`indelible.train.processes`) it is joined to the others, on one device each.
    """
    fabric = import_fabric()
    group = current()
    accelerator, _, index = device.partition(":")
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if accelerator not in {"cpu", "cuda", "mps"}:
        raise InputError(f"unknown device {device!r}: use auto, cpu, cuda, cuda:N or mps.")
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise InputError(f"the device {device!r} was asked for, but torch sees no CUDA device here. Use cpu.")
    chosen: Any = choose_precision(precision, accelerator)
    if group.world == 1:
        devices: Any = [int(index)] if index else 1
        return fabric(accelerator=accelerator, devices=devices, precision=chosen)
    if index or accelerator == "mps":
        raise InputError(f"{group.world} processes cannot share the device {device!r}. Use auto, cpu or cuda.")
    from indelible.train.strategy import Known, Unwrapped

    place = Known(group, os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0")))
    joined = fabric(
        accelerator=accelerator, devices=group.devices, num_nodes=group.nodes, strategy=Unwrapped(place),
        precision=chosen,
    )  # fmt: skip
    joined.launch()
    return joined


@contextmanager
def pinned_threads(threads: int | None) -> Iterator[None]:
    """Inside the block torch computes with ``threads`` threads; None leaves its own choice.

    Two processes with as many threads as there are cores each run several times slower than two with half of them.
    """
    if threads is None:
        yield
        return
    if threads < 1:
        raise InputError(f"the number of threads must be positive, but is {threads}.")
    before = torch.get_num_threads()
    torch.set_num_threads(min(threads, os.cpu_count() or threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)
