"""Settings of a training run, and the scales that choose them.

The defaults are the paper's for embedding (Section 4.1 and Appendix B), and the scale ``paper``: 100 epochs of SGD at
0.1, times 0.1 at epochs 50 and 75. On two CPU cores ResNet-18 would take days; it is meant for a GPU. The scale ``cpu``
is 12 epochs of one cycle in batches of 64, for the small ResNets on some thousand images. Methods and attacks that
depend on the number of steps also change their own settings at ``cpu`` (``cpu_settings`` of their classes).

Each scale has a short form for a model that is trained already (``start="trained"``): fewer epochs of one cycle that
peaks at half the rate. A method may change it: APP with a codebook takes 600 steps (docs/protect-trained.md). The form
of ``paper`` has not been measured.

Learning-rate schedules are pure functions of the progress of a run: nothing to store, nothing to resume.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

from indelible.base.checks import check_finite_settings, check_ranges, check_settings, check_words
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.records import JsonFields
from indelible.base.registry import Registry
from indelible.data.augment import Augmentation, Normalization

Start = Literal["scratch", "trained"]
STARTS: tuple[Start, ...] = ("scratch", "trained")
Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed", "64-true"]
_Kind = Literal["constant", "milestones", "every", "one-cycle", "cosine", "late-fall"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """By what factor the learning rate is multiplied at each moment.

    ``"milestones"``: times ``gamma`` at each epoch in ``epochs``; ``"every"``: times ``gamma`` every ``epochs[0]``
    epochs; ``"one-cycle"``: linear rise for the share ``warmup`` of the run, then linear fall to zero; ``"cosine"``:
    the same rise, then half a cosine to zero; ``"late-fall"``: flat for half the run, then a linear fall to a hundredth
    at nine tenths of it.
    """

    kind: _Kind = "constant"
    epochs: tuple[float, ...] = ()
    gamma: float = 0.1
    warmup: float = 0.2

    def __post_init__(self) -> None:
        if self.kind not in get_args(_Kind):
            raise UnknownNameError("schedule", self.kind, get_args(_Kind))
        if self.kind == "every" and (len(self.epochs) != 1 or self.epochs[0] <= 0):
            raise InputError(f"the schedule 'every' takes one positive interval, got {self.epochs}.")
        if not 0.0 <= self.warmup < 1.0:
            raise InputError(f"warmup is a share of the run in [0, 1), got {self.warmup}.")
        object.__setattr__(self, "epochs", tuple(self.epochs))  # JSON gives lists

    @classmethod
    def milestones(cls, *epochs: float, gamma: float = 0.1) -> Self:
        """Multiply by ``gamma`` at each of ``epochs`` (the paper's embedding: 50 and 75 of 100)."""
        return cls(kind="milestones", epochs=epochs, gamma=gamma)

    @classmethod
    def every(cls, epochs: float, gamma: float = 0.5) -> Self:
        """Multiply by ``gamma`` every ``epochs`` epochs (the paper's fine-tuning: 0.5 every 5)."""
        return cls(kind="every", epochs=(epochs,), gamma=gamma)

    @classmethod
    def one_cycle(cls, warmup: float = 0.2) -> Self:
        """Rise linearly, then fall linearly to zero."""
        return cls(kind="one-cycle", warmup=warmup)

    def factor(self, epoch: float, total: float) -> float:
        """Return the factor at ``epoch`` (with fraction) of ``total`` epochs."""
        if self.kind == "milestones":
            return self.gamma ** sum(epoch >= milestone for milestone in self.epochs)
        if self.kind == "every":
            return self.gamma ** int(epoch // self.epochs[0])
        if self.kind == "constant":
            return 1.0
        share = min(epoch / total, 1.0)
        if self.kind == "late-fall":
            return 1.0 - 0.99 * min(max((share - 0.5) / 0.4, 0.0), 1.0)
        if share < self.warmup:
            return share / self.warmup
        fall = (share - self.warmup) / (1.0 - self.warmup)
        return 1.0 - fall if self.kind == "one-cycle" else 0.5 * (1.0 + math.cos(math.pi * fall))


@dataclass(frozen=True, kw_only=True)
class TrainSettings(JsonFields):
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
        evaluate_every: Epochs between evaluations; the last epoch is always evaluated.
        checkpoint_seconds: Least time between two checkpoints.
    """

    ranges: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("epochs", "batch_size", "evaluate_every", "max_steps"), "[1, inf)"), "lr": "(0, inf)",
    }  # fmt: skip

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
    evaluate_every: int = 5
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_words(self)
        check_finite_settings(self)
        check_ranges(self, self.ranges)

    def but(self, **changes: Any) -> Self:
        """Return the settings with some changed; unknown names and wrong types are refused.

        A schedule may be given by its name, for example ``schedule="one-cycle"``.
        """
        if isinstance(changes.get("schedule"), str):
            changes["schedule"] = Schedule(kind=changes["schedule"])
        check_settings(type(self), changes, "training setting")
        return replace(self, **changes)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild settings from :meth:`to_json`."""
        fields = dict(value)
        if fields.get("sync_batchnorm") is False:  # earlier records have it
            del fields["sync_batchnorm"]
        if isinstance(fields.get("schedule"), Mapping):
            fields["schedule"] = Schedule(**fields["schedule"])
        if fields.get("normalize") is not None:
            mean, std = fields["normalize"]
            fields["normalize"] = (tuple(mean), tuple(std))
        return cls().but(**fields)


@dataclass(frozen=True)
class TrainingScale:
    """Training settings of a scale."""

    name: str
    summary: str
    settings: TrainSettings
    trained: TrainSettings  # for a model that is trained already

    def start(self, start: Start) -> TrainSettings:
        """Return the settings for a fresh network (``"scratch"``) or for one that is trained already."""
        if start not in STARTS:
            raise UnknownNameError("start", start, STARTS)
        return self.trained if start == "trained" else self.settings


SCALES: Registry[TrainingScale] = Registry("scale")
SCALES.add(
    TrainingScale(
        "cpu",
        "a one-cycle run for small networks on a few cores",
        TrainSettings(epochs=12, batch_size=64, schedule=Schedule.one_cycle(), evaluate_every=4),
        TrainSettings(epochs=10, batch_size=64, lr=0.05, schedule=Schedule.one_cycle(), evaluate_every=2),
    )
)
SCALES.add(
    TrainingScale(
        "paper",
        "the paper's 100 epochs; a GPU job",
        TrainSettings(),
        TrainSettings(epochs=20, lr=0.05, schedule=Schedule.one_cycle()),
    )
)
