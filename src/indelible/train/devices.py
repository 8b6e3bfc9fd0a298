"""Devices and precision, through Lightning Fabric; threads pinned so that processes do not fight."""

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


def choose_device(device: str = "auto") -> torch.device:
    """Return the device that a name means for this process: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.

    In a group of processes (:mod:`indelible.train.processes`) each takes a GPU of its own.
    """
    kind, _, index = device.partition(":")
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if kind not in {"cpu", "cuda", "mps"}:
        raise InputError(f"unknown device {device!r}: use auto, cpu, cuda, cuda:N or mps.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device={device!r} needs CUDA, but torch finds no CUDA device. Use cpu.")
    group = current()
    if group.world > 1 and (index or kind == "mps"):
        raise InputError(f"{group.world} processes cannot share the device {device!r}. Use auto, cpu or cuda.")
    return torch.device(kind, int(index or group.local_rank)) if kind == "cuda" else torch.device(kind)


def make_fabric(*, device: str = "auto", precision: str = "auto") -> "Fabric":
    """Return a Fabric for the device of this process, which knows nothing of other processes.

    ``DistributedDataParallel``, which it would wrap around the network, reduces gradients in hooks of the backward
    pass. A step here has several backward passes of which only the sum may be reduced, the watermark passes leave
    BatchNorm's affine parameters out (which the wrapper takes for "unused" and does not reduce at all), and the ascent
    gradient must be reduced before it is used. So the loop reduces by itself, once per step
    (:func:`indelible.nn.collectives.average`).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # announcements of the modules that its import touches
        from lightning_fabric import Fabric
    place = choose_device(device)
    devices: Any = 1 if place.index is None else [place.index]
    chosen: Any = precision
    if precision == "auto":  # CPUs emulate bfloat16 unless they have it in hardware, at a tenth of the speed
        chosen = "bf16-mixed" if place.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
    return Fabric(accelerator=place.type, devices=devices, precision=chosen)


@contextmanager
def pinned_threads(threads: int | None) -> Iterator[None]:
    """Inside the block torch computes with ``threads`` threads; None leaves its own choice.

    Two processes with as many threads as there are cores each run several times slower than two with half of them.
    """
    if threads is None:
        yield
        return
    if threads < 1:
        raise InputError(f"the number of threads must be positive, got {threads}.")
    before = torch.get_num_threads()
    torch.set_num_threads(min(threads, os.cpu_count() or threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)
