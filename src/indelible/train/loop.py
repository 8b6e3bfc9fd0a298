"""The state of a training run between its steps: what a step does, what a checkpoint holds, what processes share.

:func:`~indelible.train.fit_and_watch.fit` drives it.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from indelible.base.errors import DivergedError, InputError
from indelible.base.files import canonical_json
from indelible.base.records import plain
from indelible.base.seeding import derive_seed
from indelible.data.augment import normalise
from indelible.data.batches import Batches
from indelible.data.images import Data, ImageData
from indelible.nn.collectives import GradientSync, average, differ, own_only, send_state, unscaled
from indelible.nn.layers import check_finite
from indelible.train.checkpoint import Checkpoint, capture, load_state, read_checkpoint, write_checkpoint
from indelible.train.devices import make_fabric
from indelible.train.history import Row, show_in_tensorboard, write_history
from indelible.train.objective import Objective, Step
from indelible.train.processes import agree, current, from_first
from indelible.train.settings import TrainSettings

CHECKPOINT = "checkpoint.safetensors"
_PHASE = "phase-{}.safetensors"
_NOT_DECIDING = frozenset({"evaluate_every", "checkpoint_seconds"})  # settings that leave the result as it is
# On a GPU, asking whether another process was interrupted waits for the device: do it now and then.
_STEPS_BETWEEN_QUESTIONS = 20
Evaluate = Callable[[nn.Module], Mapping[str, float]]


@dataclass(frozen=True)
class Fitted:
    """What a training run gives besides the trained model."""

    history: Sequence[Mapping[str, Any]]  # per epoch: epoch, step, loss, lr, rates, seconds, images_per_second
    seconds: float  # of all sessions together
    images: int  # passed forward in training
    steps: int  # of the optimiser


def leftovers(folder: Path) -> list[Path]:
    """Return what a run keeps only while it is running: its checkpoint and the results of its finished phases."""
    return [*folder.glob(CHECKPOINT), *folder.glob(_PHASE.format("*"))]


class Loop:
    """The state of a run between steps."""

    def __init__(
        self, model: nn.Module, data: Data, settings: TrainSettings, seed: int, objective: Objective,
        folder: Path | None, identity: Mapping[str, Any], device: str,
    ) -> None:  # fmt: skip
        self.model, self.settings, self.objective, self.folder = model, settings, objective, folder
        self.group = current()
        self.fabric = make_fabric(device=device, precision=settings.precision)
        place = self.fabric.device
        if isinstance(data, ImageData):
            data = data.to(place)
        self.batches = Batches(
            data=data, batch_size=settings.batch_size, seed=seed, augmentation=settings.augmentation, device=place,
            rank=self.group.rank, world=self.group.world,
        )  # fmt: skip
        steps = settings.epochs * self.batches.steps
        self.total = steps if settings.max_steps is None else min(steps, settings.max_steps)
        layout = torch.channels_last if settings.channels_last else torch.contiguous_format
        model.to(memory_format=layout)  # type: ignore[call-overload]  # torch's stub lacks this signature
        self.wrapped, self.optimizer = self._set_up()
        if self.group.world > 1:
            send_state(model)
        deciding = {name: value for name, value in settings.to_json().items() if name not in _NOT_DECIDING}
        whole = {"settings": deciding, "seed": seed, **identity}
        # That of the first process: the others may have been given other initial weights, which it has replaced.
        self.fingerprint: str = from_first(lambda: hashlib.sha256(canonical_json(plain(whole))).hexdigest())
        self.step, self.images, self.loss, self.before = 0, 0, torch.zeros((), device=place), 0.0
        self.seed = seed
        self.stops, self.interrupted = torch.zeros((), device=place), False
        self.scaler = getattr(self.fabric.strategy.precision, "scaler", None)  # of a float16 run
        self.scale = unscaled if self.scaler is None else self.scaler.scale

    def finished_before(self, phase: str) -> Fitted | None:
        """Return the result of this phase if an earlier session finished it, with its weights in the model."""
        if self.folder is None:
            return None
        path = self.folder / _PHASE.format(phase)
        found = read_checkpoint(path, self.fingerprint)
        self._agree(-1 if found is None else 0)
        if found is None:
            return None
        load_state(found, self.model, self.optimizer, path)
        self._leave_ordinary()
        return Fitted(found.meta["history"], found.meta["seconds"], found.meta["images"], found.meta["step"])

    def begin(self, earlier: Sequence[Mapping[str, Any]]) -> None:
        """Start, or continue from the checkpoint."""
        torch.manual_seed(derive_seed(self.seed, "model"))
        self.earlier, self.rows = earlier, list[Row]()
        if self.folder is not None and (found := read_checkpoint(self.folder / CHECKPOINT, self.fingerprint)):
            self._resume(found, self.folder)
        self._agree(self.step)
        self._keep_history()
        self.started = self.saved = time.monotonic()
        self.epoch_started, self.epoch_images = self.started, 0

    def interrupt(self, _number: int, _frame: Any) -> None:
        """Turn the first Ctrl-C into a flag, so that a step is never torn; a second one interrupts at once."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def _agree(self, found: int) -> None:
        """Refuse a folder in which the processes do not find the same."""
        if not agree(found):
            raise InputError(
                f"the processes find different files in {self.folder}. Choose a folder that all machines see."
            )

    def _set_up(self) -> tuple[nn.Module, Optimizer]:
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        if not weights:
            raise InputError("the model has no trainable parameter: set requires_grad on what may change.")
        chosen: Optimizer
        if self.settings.optimizer == "sgd":
            chosen = SGD(
                weights, lr=self.settings.lr, momentum=self.settings.momentum,
                weight_decay=self.settings.weight_decay, nesterov=self.settings.nesterov,
            )  # fmt: skip
        else:
            chosen = AdamW(weights, lr=self.settings.lr, weight_decay=self.settings.weight_decay)
        module: Any = torch.compile(self.model) if self.settings.compile else self.model
        wrapped, optimizer = self.fabric.setup(module, chosen)
        # In mixed precision Fabric refuses gradients that do not come from its own backward. The watermark passes take
        # theirs by themselves, scaled as it would scale them (Step.scale).
        wrapped.__dict__["_register_backward_hook"] = lambda output: output
        return wrapped, optimizer

    def _resume(self, found: Checkpoint, folder: Path) -> None:
        load_state(found, self.model, self.optimizer, folder / CHECKPOINT)
        self.step, self.images = found.meta["step"], found.meta["images"]
        self.before, self.loss = found.meta["seconds"], found.tensors["loop.loss"].to(self.loss)
        if self.scaler is not None:
            self.scaler.load_state_dict(found.meta["scaler"])
        self.rows = list(found.meta["history"])

    def _keep_history(self) -> None:
        if self.folder is not None and self.group.first:
            write_history(self.folder, [*self.earlier, *self.rows])

    def advance(self, images: Tensor, labels: Tensor, epoch: int) -> None:
        """Do one step."""
        rate = self.settings.lr * self.settings.schedule.factor(self.step / self.batches.steps, self.settings.epochs)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.wrapped.train()
        self.optimizer.zero_grad()
        images = normalise(images, self.settings.normalize)
        if self.settings.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        loss = self._gradients(images, labels, epoch)
        self.loss += loss
        if self.settings.clip is not None:
            self.fabric.clip_gradients(self.wrapped, self.optimizer, max_norm=self.settings.clip)
        self.optimizer.step()
        rows = self.batches.rows(self.step % self.batches.steps)
        self.step += 1
        self.images += self.objective.passes(rows)
        self.epoch_images += rows

    def _gradients(self, images: Tensor, labels: Tensor, epoch: int) -> Tensor:
        """Leave the step's gradients, averaged over processes, in the parameters; return its loss."""
        at, together = self.step % self.batches.steps, self.group.world > 1
        share = self.batches.share(at)
        weight = share.weight(self.batches.rows(at))
        if together:
            # What the model draws itself (dropout) is a function of step and process: nothing of it has to be stored.
            torch.manual_seed(derive_seed(self.seed, "model", self.step, self.group.rank))
        step = Step(
            self.wrapped, images, labels, self.step, epoch, lambda loss: self.fabric.backward(loss * weight),
            GradientSync(share, average if together else own_only, self.scale), lambda: self.batches.indices(epoch, at),
        )  # fmt: skip
        loss = self.objective.backward(step) * weight
        if not together:
            return loss
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        # Loss and request to stop travel with the gradients: a step has one reduction of its own.
        asked = torch.full_like(loss, float(self.interrupted))
        news = torch.stack([loss, asked]).to(gradients[0].dtype)
        average([*gradients, news])
        self.stops += news[1]
        return news[0]

    def note(self) -> str:
        """Describe the moment for the progress bar."""
        steps = (self.step - 1) % self.batches.steps + 1
        last = self.rows[-1] if self.rows else {}
        rates = "".join(f" {name.upper()} {100 * last[name]:.1f} %" for name in ("ba", "wsr") if name in last)
        return f"loss {float(self.loss) / steps:.3f}{rates} {self._speed():.0f} images/s"

    def _speed(self) -> float:
        return self.epoch_images / max(time.monotonic() - self.epoch_started, 1e-9)

    def _seconds(self) -> float:
        return self.before + time.monotonic() - self.started

    def finish_epoch(self, epoch: int, evaluate: Evaluate | None, phase: str) -> Mapping[str, Any]:
        """Write the epoch's row; evaluate when it is time."""
        steps = (self.step - 1) % self.batches.steps + 1
        loss, speed = float(self.loss) / steps, self._speed()
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {'NaN' if math.isnan(loss) else 'infinite'} in epoch {epoch + 1}.",
                f"Lower the learning rate ({self.settings.lr:g}), or clip gradients (clip=1).",
            )
        row: dict[str, Any] = {
            "phase": phase, "epoch": epoch + 1, "step": self.step, "loss": loss,
            "lr": self.optimizer.param_groups[0]["lr"], "seconds": self._seconds(), "images_per_second": speed,
        }  # fmt: skip
        due = (epoch + 1) % self.settings.evaluate_every == 0 or self.ended()
        if evaluate is not None and due and self.group.first:
            row |= evaluate(self.model)
        if self.group.world > 1 and differ(self.model):
            raise InputError(
                "the weights differ between the processes. A network that uses some parameters only for some inputs "
                "cannot be trained by several processes. Start the run without torchrun."
            )
        self.rows.append(plain(row))
        self._keep_history()
        if self.folder is not None and self.group.first:
            show_in_tensorboard(self.folder, self.rows[-1])
        self.loss.zero_()
        self.epoch_started, self.epoch_images = time.monotonic(), 0
        return row

    def ended(self) -> bool:
        """Tell whether the last step is done."""
        return self.step >= self.total

    def save_if_due(self) -> None:
        """Write a checkpoint when it is time, or when the run is asked to stop: then it stops here."""
        due, stop = time.monotonic() - self.saved >= self.settings.checkpoint_seconds, self._asked_to_stop()
        if self.folder is not None and self.group.first and (due or stop):
            write_checkpoint(self.folder / CHECKPOINT, *self._state())
            self.saved = time.monotonic()
        if stop:
            raise KeyboardInterrupt

    def _asked_to_stop(self) -> bool:
        """Tell whether any process was asked to stop; all say the same at the same step."""
        if self.group.world == 1:
            return self.interrupted
        if self.stops.device.type != "cpu" and self.step % _STEPS_BETWEEN_QUESTIONS:
            return False
        return bool(self.stops > 0)

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = capture(self.model, self.optimizer, loop={"loss": self.loss})
        meta = {
            "step": self.step, "images": self.images, "seconds": self._seconds(), "history": self.rows,
            "fingerprint": self.fingerprint,
        }  # fmt: skip
        if self.scaler is not None:
            meta["scaler"] = self.scaler.state_dict()
        return tensors, meta

    def finish(self, phase: str) -> Fitted:
        """Leave the model as an ordinary one, keep the phase's result, and sum up."""
        check_finite(self.model, "the trained model")
        if self.folder is not None and self.group.first:
            write_checkpoint(self.folder / _PHASE.format(phase), *self._state())
            (self.folder / CHECKPOINT).unlink(missing_ok=True)
        # Running statistics are the first process'; the others also wait here until its files are written.
        if self.group.world > 1:
            send_state(self.model)
        self._leave_ordinary()
        rows, seconds = from_first(lambda: (tuple(self.rows), self._seconds()))
        return Fitted(tuple(rows), seconds, self.images, self.step)

    def _leave_ordinary(self) -> None:
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # as above
        self.optimizer.zero_grad()
