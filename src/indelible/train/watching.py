"""Looking at a training run from outside, step by step, without the run knowing.

Whoever watches gets the model after every optimiser step. An attack that trains inside the block cannot see the
watcher, nor what it measures: it is not given it. A watcher must leave the model and torch's random state as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import nn

__all__ = ["Watcher", "tell", "watched"]

Watcher = Callable[[nn.Module, str, int], None]
"""Called with the model, the name of the training's phase, and the number of steps done in it."""

_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Inside the block, ``watcher`` is called after every step of every training run."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


def tell(model: nn.Module, phase: str, step: int) -> None:
    """Tell all watchers that a step is done; called by the loop."""
    for watcher in _watchers.get():
        watcher(model, phase, step)
