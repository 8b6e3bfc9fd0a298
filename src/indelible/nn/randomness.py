"""The same random numbers twice: two passes that must see the same dropout masks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["same_randomness"]


@contextmanager
def same_randomness(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Yield a function that rewinds torch's generators to the start of the block.

    Passes before and after a rewind draw the same dropout masks, so that a perturbation found with one mask is tried
    with the same one. States are kept on the host: nothing waits for a device.
    """
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    host = torch.get_rng_state()
    accelerator = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind() -> None:
        torch.set_rng_state(host)
        if accelerator is not None:
            torch.cuda.set_rng_state(accelerator, device)

    yield rewind
