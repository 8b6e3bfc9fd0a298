"""BatchNorm layers of a user's own class, whose ``forward`` does more than normalise, or takes more than the rows.

Replacing such a ``forward`` by a formula would lose an activation behind the normalisation or a condition beside the
rows. So it runs as it is, with all its arguments, and only its call of :func:`torch.nn.functional.batch_norm` is
answered by somebody else.

| inside such a ``forward`` | what happens |
|---|---|
| ``F.batch_norm(..., training=True)``, also by ``super().forward(x)`` | answered by the given function |
| ``F.batch_norm(..., training=False)`` | as always |
| changes of the layer's buffers (running statistics) | made on copies, which are thrown away |
| statistics computed without ``F.batch_norm`` | cannot be seen: the caller asks ``calls`` |
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from indelible.nn.layers import BatchNorm

Normalise = Callable[[Tensor, Tensor | None, Tensor | None, float], Tensor]
"""(rows, weight, bias, eps) -> the rows, normalised."""

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Tensor]
"""(positional, keyword) arguments of :func:`torch.nn.functional.batch_norm` -> the rows, normalised.

torch hands the rows and the running statistics over by position, the rest by name.
"""


def has_own_forward(layer: BatchNorm) -> bool:
    """Tell whether the layer's class brings a ``forward`` of its own instead of torch's."""
    return type(layer).forward not in {BatchNorm.forward, nn.SyncBatchNorm.forward}


def answered_by(normalise: Normalise, layer: BatchNorm, *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """Run the forward of the layer's class with ``normalise`` for BatchNorm; return the result and how often it ran.

    The layer's buffers stay as they are.
    """

    def answer(given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
        return normalise(given[0], named["weight"], named["bias"], named["eps"])

    with _kept_buffers(layer), answering(answer) as mode:
        result = type(layer).forward(layer, *args, **kwargs)
    return result, mode.calls


class answering(TorchFunctionMode):  # noqa: N801 - used as a function: with answering(...)
    """Inside the block, ``answer`` answers every call of BatchNorm in training mode; ``calls`` counts all calls."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer, self.calls = answer, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.batch_norm:
            return func(*args, **kwargs)
        self.calls += 1
        if not kwargs["training"]:
            return func(*args, **kwargs)
        return self.answer(args, kwargs)


@contextmanager
def _kept_buffers(layer: nn.Module) -> Iterator[None]:
    """Inside the block, the layer works on copies of its buffers."""
    own = dict(layer.named_buffers(recurse=False))
    try:
        # Replaced, not written back: the graph of the pass may still need the numbers that it saw.
        for name, buffer in own.items():
            setattr(layer, name, buffer.clone())
        yield
    finally:
        for name, buffer in own.items():
            setattr(layer, name, buffer)
