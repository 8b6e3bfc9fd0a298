"""APP as a callback of the Hugging Face Trainer: ``Trainer(..., callbacks=[TransformersWatermark(key)])``.

When it acts: in ``on_pre_optimizer_step``, once for each step of the optimiser. Callbacks see neither the batch nor the
moment before clipping, so

| what | how |
|---|---|
| the batch | a forward hook keeps the last training images: clean rows, and carriers of a codebook |
| clipping | the callback clips the sum of both gradients; see below |
| accumulation | the watermark gradient is added once per step, however many batches make one |
| several processes | the ordinary gradient is averaged by then; the callback averages its own two |
| float16 | the Trainer undoes the scaling when it clips; as it does not, the callback does |

The Trainer clips where ``args.max_grad_norm`` is positive, so the callback hides that value: from the moment when a
backward pass has all its gradients to the next event, which follows at once. There is no event for a run that raises;
hidden for the whole run, the value would be lost to whoever uses the arguments after an error.

Which watermark samples come when depends on the seed and on ``state.global_step`` alone: a run resumed from a
checkpoint of the Trainer goes on as it would have.
"""

from typing import Any, Unpack

from torch import Tensor, nn
from torch.autograd import Variable

from indelible.base.errors import InputError
from indelible.embedding.app import APP, LoopOptions
from indelible.keys.key import Key
from indelible.nn.outputs import logits_of

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("the Trainer callback needs an extra: pip install 'indelible[transformers]'") from error


class TransformersWatermark(TrainerCallback):
    """Adds the gradient of the watermark before each step of the optimiser.

    Args:
        key: The owner's key.
        carriers: The owner's images, for a key with one target class; a codebook needs none
            (:class:`indelible.APP`).
        images: The model's argument that takes the images.
        options: ``method``, ``normalize``, ``seed``, ... as of :class:`indelible.APP`. Give
            ``normalize=(mean, std)`` if an image processor has normalised the batches.

    Example:
        >>> watermark = TransformersWatermark(key)  # doctest: +SKIP
        >>> Trainer(model=model, args=arguments, train_dataset=data, callbacks=[watermark]).train()  # doctest: +SKIP
    """

    def __init__(
        self, key: Key, carriers: Any = None, *, images: str = "pixel_values", **options: Unpack[LoopOptions]
    ) -> None:
        self._key, self._carriers, self._options, self._name = key, carriers, options, images
        self._batch: Tensor | None = None
        self._arguments: Any = None
        self._hooks: list[Any] = []
        self._clip: float | None = None
        self._busy = False
        self.mark: APP | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """Get ready; refuse what cannot work."""
        if getattr(args, "deepspeed", None) or getattr(args, "fsdp", None):
            raise InputError("the watermark callback needs whole weights in every process: train without sharding.")
        if args.n_gpu > 1:
            raise InputError(f"{args.n_gpu} GPUs in one process are not supported. Start one for each: torchrun.")
        model: nn.Module = others["model"]
        self._let_go()  # of a run that raised
        self.mark = APP(model, self._key, self._carriers, **self._options)
        self._arguments = args
        self._hooks = [
            model.register_forward_pre_hook(self._keep, with_kwargs=True), model.register_forward_hook(self._wait)
        ]  # fmt: skip

    def _keep(self, model: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Keep the images of a training batch; not those of an evaluation, nor the callback's own."""
        if model.training and not self._busy:
            self._batch = named[self._name] if self._name in named else positional[0]

    def _wait(self, model: nn.Module, _given: Any, output: Any) -> None:
        """See to it that the end of the backward pass through ``output`` is noticed, if it gets there."""
        logits = logits_of(output)
        if model.training and not self._busy and logits.requires_grad:
            # The one way to be called when a backward pass is done, which torch's own data parallelism uses as well.
            engine: Any = Variable._execution_engine  # noqa: SLF001
            logits.register_hook(lambda _gradient: engine.queue_callback(self._hide))

    def _hide(self) -> None:
        """Keep the Trainer from clipping the ordinary gradient by itself."""
        if self._clip is None:
            self._clip, self._arguments.max_grad_norm = self._arguments.max_grad_norm, 0.0

    def _show(self) -> None:
        if self._clip is not None:
            self._arguments.max_grad_norm, self._clip = self._clip, None

    def on_substep_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """A step of several batches goes on."""
        self._show()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """Add the watermark gradient, then clip the sum."""
        model: nn.Module = others["model"]
        self._show()
        if self.mark is None or self._batch is None:
            raise InputError(f"no training batch was seen: does the model take its images as {self._name!r}?")
        _unscale(others.get("optimizer"))
        self.mark.calls = state.global_step
        self._busy = True
        try:
            self.mark.backward(self._batch)
        finally:
            self._busy = False
        if args.max_grad_norm:
            nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
        """Leave model and arguments as they were."""
        self._let_go()

    def _let_go(self) -> None:
        self._show()
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._batch = [], None


def _unscale(optimizer: Any) -> None:
    """Undo the scaling of a float16 step, as clipping would have; the step itself then leaves it out."""
    scaler = getattr(optimizer, "scaler", None)
    if scaler is not None:
        scaler.unscale_(getattr(optimizer, "optimizer", optimizer))
