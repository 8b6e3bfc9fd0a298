"""MCR: mode connectivity repair. Leave the stolen weights along a curve of models that all classify well.

Paper: Zhao et al., "Bridging Mode Connectivity in Loss Landscapes and Adversarial Robustness", ICLR 2020, Section 3;
curves of Garipov et al., NeurIPS 2018; settings of the ICCV 2023 paper, Appendix B.4.

    phi(0) = the stolen model,  phi(1) = its fine-tuned copy,  min over b of  E_t [ L(phi_b(t)) ],  t ~ U(0, 1)

| symbol | name | default | source |
|---|---|---|---|
| share of images for the end point | ``share`` | 0.5 | Appendix B.4: two equal halves |
| phi(1) | ``end_epochs``, ``end_lr``, ``end_every``, ``end_gamma`` | 50, 0.05, 10, 0.1 | Appendix B.4 |
| b | ``epochs``, ``lr`` | 100, 0.01 | the authors' code; flat for half the run, then down to a hundredth |
| on ||phi(t)||^2 / 2 | ``curve_decay`` | 1e-4 | the authors' code |
| t | ``t`` | by budget; 0.9 in ``paper`` | Appendix B.4 |

A higher t lies further from the stolen model and is taken as the stronger attack. All settings, both protocols and the
slips that ``paper`` keeps: docs/attacks/mcr.md.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.attacks.strengths import measure
from indelible.base.errors import InputError
from indelible.base.seeding import derive_seed, generator
from indelible.data.augment import normalise, to_float
from indelible.data.images import Data
from indelible.nn.curves import BezierCurve
from indelible.nn.outputs import logits_of
from indelible.nn.statistics import estimate_statistics
from indelible.train import Objective, Schedule, Step

PAPER_T = 0.9


class AlongCurve(Objective):
    """Minimise the loss, and decay / 2 * ||phi(t)||^2, at a random point of a curve in every step.

    ``stale`` trains in evaluation mode from the second epoch on (the authors' slip).
    """

    def __init__(self, curve: BezierCurve, *, seed: int, decay: float, stale: bool) -> None:
        self.curve, self.seed, self.decay, self.stale = curve, seed, decay, stale

    def t(self, number: int) -> float:
        """Return t of a step, uniform in [0, 1)."""
        return derive_seed(self.seed, "curve", number) / 2**63

    def backward(self, step: Step) -> Tensor:
        """Add the gradient of the loss at this step's t to the bend."""
        t = self.t(step.number)
        if self.stale and step.epoch > 0:
            self.curve.eval()
        loss = F.cross_entropy(logits_of(step.model(step.images, t)), step.labels)
        step.backward(loss)
        with torch.no_grad():
            points = self.curve.point(t)
            for name, weight in self.curve.bend.named_parameters():
                if weight.grad is not None:
                    # d/db of lambda / 2 * phi(t)^2 = lambda * phi(t) * 2 t (1 - t)
                    weight.grad.add_(points[name], alpha=self.decay * 2.0 * t * (1.0 - t))
        return loss.detach()


@ATTACKS.register(
    name="mcr",
    title="Mode connectivity repair",
    paper="Zhao et al., ICLR 2020",
    summary="Take a model off a curve, trained on clean images, from the stolen model to a fine-tuned copy of it.",
    cost="75 epochs of the attacker's images (50 on one half, 100 on the other)",
)
@dataclass(frozen=True, kw_only=True)
class ModeConnectivityRepair(RemovalAttack):
    """Take a model off a curve from the stolen one; docs/attacks/mcr.md explains each setting."""

    # The end point keeps its ten epochs at the full rate and loses those at a hundredth of it and less.
    cpu_settings = {"end_epochs": 15, "epochs": 15, "points": 11}
    ranges = {"share": "(0, 1)", "t": "[0, 1]", "points": "[3, inf)"}

    share: float = 0.5
    end_epochs: int = 50
    end_lr: float = 0.05
    end_every: float = 10
    end_gamma: float = 0.1
    weight_decay: float = 5e-4
    epochs: int = 100
    lr: float = 0.01
    clip: float = 5.0
    curve_decay: float = 1e-4
    momentum: float = 0.9
    batch_size: int = 128
    t: float | None = None
    points: int = 21
    ba_drop: float = 0.02
    statistics: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistics is not None and self.protocol != "paper":
            raise InputError(
                "statistics of a test set repeat an error of the authors' code: give them with protocol='paper' only."
            )

    def passes(self, images: float, classes: int) -> float:
        return images * (self.share * self.end_epochs + (1 - self.share) * (self.epochs + self.points))

    def curve_models(self) -> int:
        return self.points

    def run(self, job: Removal) -> None:
        """Fine-tune an end point, train the curve, take a point off it."""
        paper = self.protocol == "paper"
        fitting, held = job.parts()
        first, second = self._halves(job.data if paper else fitting, job.seed)
        settings = self.training()
        end = copy.deepcopy(job.model)
        falling = Schedule.every(self.end_every, self.end_gamma)
        job.train(
            settings.but(epochs=self.end_epochs, lr=self.end_lr, schedule=falling),
            phase="end-point", model=end, data=first,
        )  # fmt: skip
        curve = BezierCurve(job.model, end)
        job.train(
            settings.but(weight_decay=0.0, clip=self.clip, schedule=Schedule(kind="late-fall")),
            phase="curve", model=curve, data=second,
            objective=AlongCurve(curve, seed=job.seed, decay=self.curve_decay, stale=paper),
        )  # fmt: skip
        self._take(job, curve, second, held)

    def _halves(self, data: Data, seed: int) -> tuple[Data, Data]:
        order = torch.randperm(len(data), generator=generator(seed, "halves"))
        cut = min(max(round(self.share * len(data)), 2), len(data) - 2)
        if cut < 2:
            raise InputError(f"the attacker has {len(data)} images to split, and each part needs two. Give more.")
        return data.subset(order[:cut].sort().values), data.subset(order[cut:].sort().values)

    def _take(self, job: Removal, curve: BezierCurve, data: Data, held: Data) -> None:
        """Go along the curve with the attacker's own images, settle for one t, and take its model."""
        paper = self.protocol == "paper"
        if self.statistics is not None:
            from indelible.data import load

            data = load(self.statistics)[1]

        # Kept, since they cost far more to estimate than to hold: whoever goes over the curve later asks again.
        known: dict[float, dict[str, Tensor]] = {}

        def build(t: float) -> nn.Module:
            model = curve.at(t)
            if t in known:
                model.load_state_dict(known[t], strict=False)
                return model
            if paper:
                model.load_state_dict(dict(curve.bend.named_buffers()), strict=False)
            job.count(estimate_statistics(model, self._batches(job, data), moving=paper))
            known[t] = {name: buffer.clone() for name, buffer in model.named_buffers()}
            return model

        evenly = [round(step / (self.points - 1), 6) for step in range(self.points)]
        given = PAPER_T if self.t is None and paper else self.t
        chosen = measure(job, "t", evenly, build, judges=held, ba_drop=self.ba_drop, given=given, inner=True)
        job.note(t=chosen)
        job.model = build(chosen)

    def _batches(self, job: Removal, data: Data) -> Iterator[Tensor]:
        # A last batch of a single image has no variance.
        rows = len(data) - (len(data) % self.batch_size == 1)
        for images, _ in data.iterate(torch.arange(rows), self.batch_size, job.place):
            yield normalise(to_float(images), job.normalize)
