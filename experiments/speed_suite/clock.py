"""How time and memory of a piece of work are taken.

On a CPU time is processor time of the whole process, all threads together: what other processes do in the meantime does
not count. On an accelerator it is wall time between two moments at which the device has nothing left to do.
"""

import os
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["clock_name", "peak_bytes", "seconds_of"]

_MEMORY = "[memory]"


def clock_name(device: torch.device) -> str:
    """Return which clock is read: ``"processor"`` or ``"wall"``."""
    return "processor" if device.type == "cpu" else "wall"


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize(device)
    return time.perf_counter()


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that one call of ``work`` takes."""
    began = _now(device)
    work()
    return _now(device) - began


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Return the highest sum of what one call of ``work`` holds at a time, beyond what was there before.

    On a CPU every allocation and release of torch's own allocator is added up; the profiler that reports them slows the
    call down. On CUDA its allocator keeps the maximum itself.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler else writes its stages among our lines
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        kept = work()
    del kept
    events = [event for event in found.profiler.kineto_results.events() if event.name() == _MEMORY]
    events.sort(key=lambda event: event.start_ns())
    total = highest = 0
    for event in events:
        total += event.nbytes()
        highest = max(highest, total)
    return highest
