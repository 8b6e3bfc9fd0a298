"""APP as a callback of the Hugging Face Trainer: ``Trainer(..., callbacks=[Watermark(key, carriers, alpha=0.01)])``.

When it acts: in ``on_pre_optimizer_step``, once for each step of the optimiser. Callbacks see neither the batch nor the
moment before clipping, so

| what | how |
|---|---|
| the batch | a forward hook on the model keeps the last training images, whose first rows are the clean ones |
| clipping | ``args.max_grad_norm`` is zero while training; the callback clips the sum of both gradients by its value |
| accumulation | the watermark gradient is added once a step, however many batches make one |
| several processes | the ordinary gradient is averaged by then; the callback averages its own two |
| float16 | the Trainer has undone the scaling by then |

Which watermark images come when depends on the seed and on ``state.global_step`` alone: a run resumed from a checkpoint
of the Trainer goes on as it would have.
"""

from typing import Any

from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.embed.app import APP
from indelible.keys.key import Key

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("the Trainer callback needs an extra: pip install 'indelible[transformers]'") from error

__all__ = ["Watermark"]


class Watermark(TrainerCallback):
    """Adds the gradient of the watermark before each step of the optimiser.

    Args:
        key: The owner's key.
        carriers: The owner's images, as :class:`indelible.APP` takes them.
        images: The model's argument that takes the images.
        settings: ``eps``, ``alpha``, ``rows``, ``normalize``, ``seed``, ... as of :class:`indelible.APP`. Give
            ``normalize=(mean, std)`` if an image processor has normalised the batches.

    Example:
        >>> watermark = Watermark(key, carriers, eps=0.02, alpha=0.01)  # doctest: +SKIP
        >>> Trainer(model=model, args=arguments, train_dataset=data, callbacks=[watermark]).train()  # doctest: +SKIP
    """

    def __init__(self, key: Key, carriers: Any, *, images: str = "pixel_values", **settings: Any) -> None:
        self._key, self._carriers, self._settings, self._name = key, carriers, settings, images
        self._batch: Tensor | None = None
        self._hook: Any = None
        self._clip = 0.0
        self._busy = False
        self.mark: APP | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """Get ready; refuse what cannot work."""
        if getattr(args, "deepspeed", None) or getattr(args, "fsdp", None):
            raise InputError("the watermark callback needs whole weights in every process: train without sharding.")
        if args.n_gpu > 1:
            raise InputError(f"{args.n_gpu} GPUs in one process are not supported. Start one for each: torchrun.")
        model: nn.Module = others["model"]
        self.mark = APP(model, self._key, self._carriers, **self._settings)
        self._hook = model.register_forward_pre_hook(self._keep, with_kwargs=True)
        self._clip, args.max_grad_norm = args.max_grad_norm, 0.0

    def _keep(self, model: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Keep the images of a training batch; not those of an evaluation, nor the callback's own."""
        if model.training and not self._busy:
            self._batch = named[self._name] if self._name in named else positional[0]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """Add the watermark gradient, then clip the sum."""
        model: nn.Module = others["model"]
        if self.mark is None or self._batch is None:
            raise InputError(f"no training batch was seen: does the model take its images as {self._name!r}?")
        self.mark.calls = state.global_step
        self._busy = True
        try:
            self.mark.backward(self._batch)
        finally:
            self._busy = False
        if self._clip:
            nn.utils.clip_grad_norm_(model.parameters(), self._clip)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """Leave model and arguments as they were."""
        args.max_grad_norm = self._clip
        self._hook.remove()
        self._batch = None
