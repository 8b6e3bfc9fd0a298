"""Settings of a training run. The defaults are the paper's for embedding (Section 4.1 and Appendix B)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from indelible.base.checks import check_finite_settings, check_settings
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.records import plain
from indelible.data.augment import AUGMENTATIONS, Augmentation, Normalization
from indelible.train.schedule import Schedule

__all__ = ["Precision", "TrainSettings"]

Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"]
_PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "64-true")
_OPTIMIZERS = ("sgd", "adamw")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How to train.

    Attributes:
        epochs: Passes over the data.
        max_steps: Stop after so many steps, whatever ``epochs`` says; schedules still span ``epochs``.
        batch_size: Images in a step, over all processes.
        optimizer: ``"sgd"`` or ``"adamw"``.
        lr: Peak learning rate.
        momentum: Of SGD.
        weight_decay: Of either optimiser.
        nesterov: Nesterov momentum in SGD.
        schedule: How the learning rate changes.
        clip: Largest norm of the gradient; None for no limit.
        label_smoothing: Of the ordinary loss.
        augmentation: What is done to training images.
        normalize: (mean, std) of each channel that the model expects; the paper uses none.
        precision: ``"auto"`` takes bfloat16 where the device has it in hardware and float32 elsewhere.
        channels_last: Memory layout; faster for convolutions on CPUs and on recent GPUs.
        compile: Use ``torch.compile``.
        sync_batchnorm: With several processes, BatchNorm normalises by the rows of all of them, c-BN by all their clean
            rows; without, only ``nn.SyncBatchNorm`` layers do.
        evaluate_every: Epochs between evaluations; the last epoch is always evaluated.
        checkpoint_seconds: Least time between two checkpoints.
    """

    epochs: int = 100
    max_steps: int | None = None
    batch_size: int = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = False
    schedule: Schedule = field(default_factory=lambda: Schedule.milestones(50, 75))
    clip: float | None = None
    label_smoothing: float = 0.0
    augmentation: Augmentation = "crop-flip"
    normalize: Normalization | None = None
    precision: Precision = "auto"
    channels_last: bool = True
    compile: bool = False
    sync_batchnorm: bool = False
    evaluate_every: int = 5
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_finite_settings(self)
        if self.optimizer not in _OPTIMIZERS:
            raise UnknownNameError("optimizer", self.optimizer, _OPTIMIZERS)
        if self.precision not in _PRECISIONS:
            raise UnknownNameError("precision", self.precision, _PRECISIONS)
        if self.augmentation not in AUGMENTATIONS:
            raise UnknownNameError("augmentation", self.augmentation, AUGMENTATIONS)
        for name in ("epochs", "batch_size", "lr", "evaluate_every"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive, but is {getattr(self, name)}.")
        if self.max_steps is not None and self.max_steps <= 0:
            raise InputError(f"max_steps must be positive, but is {self.max_steps}. Leave it out for no limit.")

    def but(self, **changes: Any) -> Self:
        """Return the settings with some changed; unknown names and wrong types are refused.

        A schedule may be given by its name, for example ``schedule="one-cycle"``.
        """
        if isinstance(changes.get("schedule"), str):
            changes["schedule"] = Schedule(kind=changes["schedule"])
        check_settings(type(self), changes, "training setting")
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild settings from :meth:`to_json`."""
        fields = dict(value)
        if isinstance(fields.get("schedule"), Mapping):
            fields["schedule"] = Schedule(**fields["schedule"])
        if fields.get("normalize") is not None:
            mean, std = fields["normalize"]
            fields["normalize"] = (tuple(mean), tuple(std))
        return cls().but(**fields)
