"""The training loop: embedding, fine-tuning and distilling all go through :func:`fit`.

The same settings and seed give the same bits on the same machine, and a run killed at any moment resumes to the same
bits: batches are pure functions of (seed, epoch, step), and a checkpoint holds everything else. Nothing in a step waits
for the device.

With several processes (:mod:`indelible.train.processes`) each takes its rows of every batch, and the gradients of a
step are averaged once, when all its backward passes are done. The first process evaluates and writes.

Whoever watches a run from outside (:func:`watched`) gets the model after every optimiser step. An attack that trains
inside the block cannot see the watcher, nor what it measures: it is not given it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from torch import nn

from indelible.base.progress import Progress
from indelible.data.images import Data
from indelible.nn.layers import check_finite
from indelible.train.loop import Evaluate, Fitted, Loop
from indelible.train.objective import CrossEntropy, Objective
from indelible.train.processes import on_interrupt
from indelible.train.settings import TrainSettings

Watcher = Callable[[nn.Module, str, int], None]
"""Called with the model, the name of the training's phase, and the number of steps done in it.

It must leave the model and torch's random state as they are.
"""

_watchers: ContextVar[tuple[Watcher, ...]] = ContextVar("watchers", default=())


def fit(
    model: nn.Module,
    data: Data,
    settings: TrainSettings,
    *,
    seed: int,
    objective: Objective | None = None,
    evaluate: Evaluate | None = None,
    folder: Path | None = None,
    identity: Mapping[str, Any] | None = None,
    device: str = "auto",
    phase: str = "training",
    earlier: Sequence[Mapping[str, Any]] = (),
) -> Fitted:
    """Train ``model`` in place.

    Args:
        model: Any classifier.
        data: The training set.
        settings: How to train.
        seed: Decides order, augmentation and whatever the model draws itself (dropout).
        objective: What to minimise; by default the cross-entropy.
        evaluate: Called with the model every few epochs; its rates go into the history.
        folder: Where checkpoints and history are kept; a run found there is continued.
        identity: What else makes this run this run (digests of key and data); a checkpoint of another is refused.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.
        phase: What this training is called; a run of several phases names each, and does none twice when it resumes.
        earlier: Rows of the phases before, which the history file shows first.

    Raises:
        InputError: The model, the data or a checkpoint cannot be used.
        KeyboardInterrupt: After Ctrl-C, once the step is finished and the checkpoint written.
    """
    objective = objective or CrossEntropy(settings.label_smoothing)
    check_finite(model)
    loop = Loop(model, data, settings, seed, objective, folder, {**(identity or {}), "phase": phase}, device)
    if (done := loop.finished_before(phase)) is not None:
        return done
    with on_interrupt(loop.interrupt):
        loop.begin(earlier)
        with Progress(phase, loop.total, done=loop.step) as bar:
            for epoch in range(loop.step // loop.batches.steps, settings.epochs):
                for images, labels in loop.batches.epoch(epoch, start=loop.step % loop.batches.steps):
                    loop.advance(images, labels, epoch)
                    for watcher in _watchers.get():
                        watcher(loop.model, phase, loop.step)
                    bar.advance(note=loop.note() if bar.due else None)
                    if loop.ended():
                        break
                    if loop.step % loop.batches.steps:
                        loop.save_if_due()
                row = loop.finish_epoch(epoch, evaluate, phase)
                bar.line(f"{phase}: {_describe(row, settings.epochs)}")
                if loop.ended():
                    break
                # At an epoch's end only now: a checkpoint holds the rows of all epochs it has left behind.
                loop.save_if_due()
        return loop.finish(phase)


def _describe(row: Mapping[str, Any], epochs: int) -> str:
    rates = "".join(f"  {name.upper()} {100 * row[name]:5.1f} %" for name in ("ba", "wsr") if name in row)
    speed = f"{row['images_per_second']:.0f} images/s"
    return f"epoch {row['epoch']:>3}/{epochs}  loss {row['loss']:.4f}{rates}  {speed}  {row['seconds']:.0f} s"


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Inside the block, ``watcher`` is called after every step of every training run."""
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)
