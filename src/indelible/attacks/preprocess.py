"""Input pre-processing: the weights stay, but every image is changed before the stolen model sees it.

Papers: Zantedeschi et al., "Efficient Defenses Against Adversarial Attacks", AISec 2017; Li et al., "Backdoor Attack in
the Physical World", 2021 - flips and shrinking break many triggers; bit depth: Xu et al., "Feature Squeezing", NDSS
2018. :data:`TRANSFORMS` has the strengths; their units and both protocols: docs/attacks/preprocess.md.

An attack returns an ordinary model, and this one returns the stolen weights as they are. What is done to the images is
in the record (``preprocessing``), and :func:`deployed` puts it before the model again: that is what the evaluator asks.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.curve import Curve, choose
from indelible.attacks.removal_attack import ATTACKS, Removal, RemovalAttack
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.records import Record
from indelible.base.seeding import generator
from indelible.data.augment import Normalization, denormalise, normalise, to_float
from indelible.train.evaluate import predict


def jpeg(images: Tensor, quality: float) -> Tensor:
    """Encode and decode each image as JPEG."""
    from PIL import Image

    if images.shape[1] not in {1, 3}:
        raise InputError(f"JPEG needs images with 1 or 3 channels, got {images.shape[1]}. Use blur or noise.")
    decoded = []
    for image in images.cpu().permute(0, 2, 3, 1).numpy():
        buffer = io.BytesIO()
        Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(buffer, "JPEG", quality=int(quality))
        # frombuffer needs memory that may be written; a bytearray is a copy that may.
        pixels = torch.frombuffer(bytearray(Image.open(buffer).tobytes()), dtype=torch.uint8)
        decoded.append(pixels.view(image.shape).permute(2, 0, 1))
    return torch.stack(decoded).to(images.device) if decoded else images


def blur(images: Tensor, sigma: float) -> Tensor:
    """Blur by a Gaussian of ``sigma`` pixels, cut off at three sigma; edges are repeated."""
    radius = max(1, round(3 * sigma))
    places = torch.arange(-radius, radius + 1, dtype=torch.float32, device=images.device)
    kernel = torch.exp(-0.5 * (places / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(images.shape[1], 1, 1, -1)
    padded = F.pad(images.float(), (radius,) * 4, mode="replicate")
    rows = F.conv2d(padded, kernel, groups=images.shape[1])
    return F.conv2d(rows, kernel.transpose(2, 3), groups=images.shape[1]).round().to(torch.uint8)


def noise(images: Tensor, deviation: float) -> Tensor:
    """Add Gaussian noise; the same images in the same order get the same noise."""
    drawn = torch.randn(images.shape, generator=generator(0, "preprocess", "noise")).to(images.device)
    return (images + 255.0 * deviation * drawn).round().clamp(0, 255).to(torch.uint8)


def bits(images: Tensor, kept: float) -> Tensor:
    """Keep so many bits of each value; levels spread over 0..255 again."""
    levels = (1 << int(kept)) - 1
    coarse = (images.float() / 255.0 * levels).round()
    return (coarse * (255.0 / levels)).round().to(torch.uint8)


def flip(images: Tensor, _strength: float) -> Tensor:
    """Flip left-right."""
    return images.flip(-1)


@dataclass(frozen=True)
class Transform:
    """One way to change uint8 images (N, C, H, W); strengths go from mild to strong, all within ``low`` and ``high``.

    ``fixed`` is the strength of the protocol ``paper``.
    """

    change: Callable[[Tensor, float], Tensor]
    strengths: tuple[float, ...]
    fixed: float
    low: float
    high: float


TRANSFORMS: Mapping[str, Transform] = {
    "jpeg": Transform(jpeg, (95, 85, 75, 50, 25, 10), 75, 1, 100),
    "blur": Transform(blur, (0.3, 0.5, 0.7, 1.0, 1.5, 2.0), 1.0, 0.05, 100.0),
    "noise": Transform(noise, (0.01, 0.02, 0.05, 0.1, 0.15, 0.2), 0.05, 0.0, 1.0),
    "bits": Transform(bits, (6, 5, 4, 3, 2, 1), 3, 1, 8),
    "flip": Transform(flip, (1,), 1, 1, 1),
}


def preprocess(images: Tensor, transform: str, strength: float | None = None) -> Tensor:
    """Change uint8 images (N, C, H, W) by a transform; without a strength by that of the protocol ``paper``."""
    if transform not in TRANSFORMS:
        raise UnknownNameError("transform", transform, TRANSFORMS)
    kind = TRANSFORMS[transform]
    strength = kind.fixed if strength is None else strength
    if not kind.low <= strength <= kind.high:
        raise InputError(f"the strength of {transform} must lie in {kind.low:g}..{kind.high:g}, got {strength}.")
    return kind.change(images, strength)


class Preprocessed(nn.Module):
    """A suspect that changes its input first: ``Preprocessed(suspect, "jpeg", 75)``.

    Args:
        suspect: A torch module, or anything with ``predict(images)``.
        transform: A name in :data:`TRANSFORMS`.
        strength: As the table in the module's header says; None for that of the protocol ``paper``.
        normalize: (mean, std) that a module's input is normalised by.

    A module can also be called with float images, as it is called itself.
    """

    def __init__(
        self, suspect: Any, transform: str, strength: float | None = None, *, normalize: Normalization | None = None
    ) -> None:
        super().__init__()
        preprocess(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), transform, strength)  # refuses what it cannot do
        if not isinstance(suspect, nn.Module) and not hasattr(suspect, "predict"):
            raise InputError(f"a suspect must be a module or have predict(images), got {type(suspect).__name__}.")
        self.suspect, self.transform, self.strength, self.normalize = suspect, transform, strength, normalize

    def predict(self, images: Tensor) -> Tensor:
        """Return a label (int64, (N,)) for each of ``images`` (uint8, (N, C, H, W))."""
        changed = preprocess(images, self.transform, self.strength)
        if isinstance(self.suspect, nn.Module):
            return predict(self.suspect, changed, normalize=self.normalize)
        answers: Tensor = self.suspect.predict(changed)
        return answers

    def forward(self, images: Tensor) -> Any:
        """Return what the module answers to the changed images; ``images`` are normalised floats."""
        pixels = denormalise(images.float(), self.normalize).mul(255.0).round().clamp(0, 255).to(torch.uint8)
        changed = preprocess(pixels, self.transform, self.strength)
        return self.suspect(normalise(to_float(changed), self.normalize).to(images.dtype))


def deployed(model: nn.Module, record: Record, *, normalize: Normalization | None = None) -> nn.Module:
    """Return a model as its holder runs it: with the pre-processing that its record names, if any."""
    found = record.metrics.get("preprocessing") if record.verb == "attack" else None
    if found is None:
        return model
    return Preprocessed(model, str(found["transform"]), float(found["strength"]), normalize=normalize).eval()


def evaluate_transforms(
    model: nn.Module, evaluate: Callable[[nn.Module], Mapping[str, float]], *, normalize: Normalization | None = None
) -> list[dict[str, Any]]:
    """Measure a model under every transform at its fixed strength: one row each, with the rates of ``evaluate``."""
    return [
        {"transform": name, "strength": kind.fixed, **evaluate(Preprocessed(model, name, normalize=normalize))}
        for name, kind in TRANSFORMS.items()
    ]


@ATTACKS.register(
    name="preprocess",
    title="Input pre-processing",
    paper="Zantedeschi et al., AISec 2017; Xu et al., NDSS 2018",
    summary="Leave the weights, but compress, blur, disturb, coarsen or flip every image before the model sees it.",
    cost="12 passes over the attacker's images, none backward",
)
@dataclass(frozen=True, kw_only=True)
class InputPreprocessing(RemovalAttack):
    """Change every image before the model sees it; docs/attacks/preprocess.md explains each setting."""

    transform: str = "jpeg"
    strength: float | None = None
    ba_drop: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        preprocess(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), self.transform, self.strength)

    def passes(self, images: float, classes: int) -> float:
        return images * (self.curve_models() + 1 + len(TRANSFORMS))

    def curve_models(self) -> int:
        return len(TRANSFORMS[self.transform].strengths)

    def run(self, job: Removal) -> None:
        """Measure every strength on the attacker's images and settle for one; the model stays as it is."""
        kind = TRANSFORMS[self.transform]
        fixed = kind.fixed if self.strength is None and self.protocol == "paper" else self.strength
        strengths = kind.strengths if fixed is None or fixed in kind.strengths else (*kind.strengths, fixed)

        def build(strength: float) -> nn.Module:
            return Preprocessed(job.model, self.transform, strength, normalize=job.normalize)

        # Nothing is fitted to the images, so all of them may judge.
        accuracies = tuple(job.accuracy(build(strength), job.data) for strength in strengths)
        chosen = fixed
        if chosen is None:
            reference = job.accuracy(job.model, job.data)
            # Strength grows along the list, whichever way its numbers go.
            order = range(len(strengths))
            chosen = strengths[int(choose(order, accuracies, reference, self.ba_drop))]
        every = evaluate_transforms(
            job.model, lambda model: {"accuracy": job.accuracy(model, job.data)}, normalize=job.normalize
        )
        job.note(preprocessing={"transform": self.transform, "strength": chosen}, transforms=every)
        job.curve = Curve(name=self.transform, values=strengths, accuracies=accuracies, chosen=chosen, build=build)
