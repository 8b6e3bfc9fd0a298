"""BatchNorm layers of a user's own class, whose ``forward`` does more than normalise, or takes more than the rows.

An activation behind the normalisation, a condition beside the rows: replacing such a ``forward`` by a formula would
lose both. So it runs as it is, with all its arguments, and only its call of :func:`torch.nn.functional.batch_norm` is
answered by somebody else. What the layer does around that call stays.

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

__all__ = ["Normalise", "answered_by", "has_own_forward"]

Normalise = Callable[[Tensor, Tensor | None, Tensor | None, float], Tensor]
"""(rows, weight, bias, eps) -> the rows, normalised."""


def has_own_forward(layer: BatchNorm) -> bool:
    """Tell whether the layer's class brings a ``forward`` of its own instead of torch's."""
    return type(layer).forward not in {BatchNorm.forward, nn.SyncBatchNorm.forward}


def answered_by(normalise: Normalise, layer: BatchNorm, *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """Run the forward of the layer's class with ``normalise`` for BatchNorm; return the result and how often it ran.

    Args:
        normalise: Answers for :func:`torch.nn.functional.batch_norm`.
        layer: The layer; its buffers stay as they are.
        args: Arguments of the layer's ``forward``.
        kwargs: Keyword arguments of the layer's ``forward``.
    """
    with _kept_buffers(layer), _Answering(normalise) as answering:
        result = type(layer).forward(layer, *args, **kwargs)
    return result, answering.calls


class _Answering(TorchFunctionMode):
    def __init__(self, normalise: Normalise) -> None:
        super().__init__()
        self.normalise, self.calls = normalise, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.batch_norm:
            return func(*args, **kwargs)
        self.calls += 1
        # torch hands the rows and the running statistics over by position, the rest by name.
        if not kwargs["training"]:
            return func(*args, **kwargs)
        return self.normalise(args[0], kwargs["weight"], kwargs["bias"], kwargs["eps"])


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
