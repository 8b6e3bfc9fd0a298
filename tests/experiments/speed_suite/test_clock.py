"""Seconds and bytes of known pieces of work."""

import time

import torch

from speed_suite.clock import clock_name, peak_bytes, seconds_of

CPU = torch.device("cpu")


def test_waiting_is_not_processor_time() -> None:
    assert clock_name(CPU) == "processor"
    assert seconds_of(lambda: time.sleep(0.2), CPU) < 0.1


def test_peak_by_hand() -> None:
    """8,000 bytes are held while 4,000 more come and go; after that, nothing."""

    def work() -> None:
        kept = torch.empty(1000, dtype=torch.float64)
        torch.empty(500, dtype=torch.float64)
        del kept
        torch.empty(1200, dtype=torch.float64)

    assert peak_bytes(work, CPU) == 12_000
