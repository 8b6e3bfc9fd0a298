"""APP as a callback of the Lightning Trainer: ``Trainer(callbacks=[LightningWatermark(key)])``.

When it acts: in ``on_before_optimizer_step``, once for each step of the optimiser. By then Lightning has

| what | so that |
|---|---|
| done all backward passes of an accumulated step | the watermark gradient is added once per step |
| averaged the ordinary gradient over processes (DDP) | the callback averages its own two gradients and all stay alike |
| undone the scaling of a float16 step | both gradients have one scale |
| *not yet* clipped | ordinary and watermark gradient are clipped together |

Clean rows, and the rows that a codebook is stamped on, are those of the last batch before the step. Which marks or
watermark samples come when depends on the seed and on
``trainer.global_step`` alone: a run resumed from Lightning's checkpoint goes on as it would have.
"""

from collections.abc import Callable
from typing import Any, Unpack

from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.embedding.app import APP, LoopOptions
from indelible.keys.key import Key

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError("the Lightning callback needs an extra: pip install 'indelible[lightning]'") from error


class LightningWatermark(Callback):
    """Adds the gradient of the watermark before each step of the optimiser.

    Args:
        key: The owner's key.
        carriers: The owner's images, for a key with one target class; a codebook needs none
            (:class:`indelible.APP`).
        classifier: Returns, from the LightningModule, the module that maps images to logits; by default the
            LightningModule itself, through its ``forward``.
        images: Returns the images from a batch, as the classifier takes them; by default its first element.
        options: ``method``, ``normalize``, ``seed``, ... as of :class:`indelible.APP`.

    Example:
        >>> watermark = LightningWatermark(key)  # doctest: +SKIP
        >>> Trainer(max_epochs=10, callbacks=[watermark]).fit(module, loader)  # doctest: +SKIP
    """

    def __init__(
        self, key: Key, carriers: Any = None, *, classifier: Callable[[Any], nn.Module] | None = None,
        images: Callable[[Any], Tensor] | None = None, **options: Unpack[LoopOptions],
    ) -> None:  # fmt: skip
        super().__init__()
        self._key, self._carriers, self._options = key, carriers, options
        self._classifier = classifier or (lambda module: module)
        self._images = images or (lambda batch: batch[0])
        self._batch: Any = None
        self.mark: APP | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Get ready; refuse what cannot work."""
        if len(trainer.optimizers) != 1:
            raise InputError(
                f"the watermark callback needs one optimiser, got {len(trainer.optimizers)}. Use "
                "indelible.APP inside your training_step instead."
            )
        name = type(trainer.strategy).__name__
        if not name.startswith(("SingleDevice", "DDP")):
            raise InputError(f"the watermark callback needs whole weights in every process, but {name} splits them.")
        self.mark = APP(self._classifier(pl_module), self._key, self._carriers, **self._options)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """Keep the batch, for its clean rows."""
        self._batch = batch

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
        """Add the watermark gradient, in the precision of the run."""
        if self.mark is None:
            raise InputError("the watermark callback works in trainer.fit only.")
        self.mark.calls = trainer.global_step
        with trainer.precision_plugin.train_step_context():
            self.mark.backward(self._images(self._batch))

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Free the last batch."""
        self._batch = None
