"""Forge claims on models that never saw a watermark. It exists to be refused.

Literature: "False Claims against Model Ownership Resolution", USENIX Security 2024: whoever may optimise a "trigger" on
models of their own gets transferable adversarial examples, and with them a claim on everybody else's model.
Moosavi-Dezfooli et al., "Universal Adversarial Perturbations", CVPR 2017.

The forger holds *surrogates*, models that it trained itself for the same task, and never sees the victims.

| attempt | what it chooses | against what |
|---|---|---|
| :func:`universal_trigger` | one pattern for all images, towards one class or away from the true one | a free trigger |
| :func:`transferable` | a pattern for each image, towards a class for each | labels that a claimant may choose |
| :func:`ground_key` | the best of many secrets, for a fixed target or none | a derived key without keyed labels |
| :func:`ground_labels` | the best of many secrets, for samples of its own making | a derived key with keyed labels |

A secret cannot be steered, only drawn again. If a test's p-values are valid, the best of N draws reaches p <= alpha
with probability at most N alpha (union bound), whatever the models. A thousand draws reach 1e-6 once in a thousand
times; a claimant who may have made 2^40 draws must show p <= 1e-18 for a chance of one in a million.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.data.augment import to_float
from indelible.data.digests import image_digests
from indelible.data.images import Data
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.labels import keyed_labels
from indelible.nn.outputs import logits_of
from indelible.train.evaluate import predict
from indelible.verification.statistics.exact_tests import keyed_p_value

__all__ = [
    "grinding_bound",
    "ground_key",
    "ground_labels",
    "keyed_p",
    "said",
    "stamped",
    "transferable",
    "universal_trigger",
]


def grinding_bound(alpha: float, draws: int) -> float:
    """Return the most likely that the best of ``draws`` secrets reaches p <= alpha: the union bound."""
    return min(1.0, alpha * draws)


def universal_trigger(
    models: Sequence[nn.Module], images: Tensor, target: int | Tensor, *, eps: float = 0.25, steps: int = 60,
    lr: float = 0.05,
) -> Tensor:  # fmt: skip
    """Return one pattern (int16, (C, H, W), steps of 1/255) that sends images to ``target`` on all ``models``.

    Args:
        models: The forger's own.
        images: uint8 (N, C, H, W).
        target: The class; or the true class of each image (int64, (N,)), to be led away from.
        eps: Largest change of a pixel, relative to its range.
        steps: Of Adam, each over all models.
        lr: Of Adam.
    """
    away = isinstance(target, Tensor)
    labels = target if isinstance(target, Tensor) else torch.full((len(images),), target)
    pattern = _optimised(models, images, labels, torch.zeros(images.shape[1:]), eps, steps, lr, away=away)
    return (pattern * 255).round().to(torch.int16)


def transferable(
    models: Sequence[nn.Module], images: Tensor, labels: Tensor, *, eps: float = 0.25, steps: int = 40, lr: float = 0.05
) -> Tensor:
    """Return images (uint8), each changed so that all ``models`` answer its label; arguments as above."""
    pattern = _optimised(models, images, labels, torch.zeros(images.shape), eps, steps, lr)
    return stamped(images, (pattern * 255).round().to(torch.int16))


def stamped(images: Tensor, pattern: Tensor) -> Tensor:
    """Add a pattern in steps of 1/255 to uint8 images."""
    return (images.to(torch.int16) + pattern).clamp_(0, 255).to(torch.uint8)


def _optimised(
    models: Sequence[nn.Module], images: Tensor, labels: Tensor, start: Tensor, eps: float, steps: int, lr: float, *,
    away: bool = False,
) -> Tensor:  # fmt: skip
    """Minimise (``away``: maximise) the mean loss of the models at ``labels`` over a pattern within ``eps``."""
    if not models:
        raise InputError("a forger needs at least one model of its own.")
    pattern = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([pattern], lr=lr)
    clean = to_float(images)
    for model in models:
        model.eval()
    for _ in range(steps):
        optimizer.zero_grad()
        shown = (clean + pattern).clamp(0.0, 1.0)
        loss = torch.stack([F.cross_entropy(logits_of(model(shown)), labels) for model in models]).mean()
        # The models' own gradients are left alone.
        (pattern.grad,) = torch.autograd.grad(-loss if away else loss, [pattern])
        optimizer.step()
        with torch.no_grad():
            pattern.clamp_(-eps, eps)
    return pattern.detach()


def ground_key(
    models: Sequence[nn.Module], carriers: Data, template: Key, secrets: Iterable[bytes]
) -> tuple[Key, float]:
    """Return the key, of all ``secrets``, whose mark makes most hits on ``models``, and how many.

    Hits are images sent to the target; of an untargeted key, images that are answered wrongly.

    Args:
        models: The forger's own.
        carriers: Images that marks are drawn on.
        template: Settings of the key; its secret is not used.
        secrets: What is tried.
    """
    if template.labels == "keyed":
        raise InputError("keys with a target class, or none, are ground here; for keyed labels use ground_labels.")
    fresh = template.samples(carriers, purpose="verify")
    plain, best = carriers.gather(fresh.carriers).images, (-1.0, b"")
    for secret in secrets:
        mark = _with_secret(template, secret).mark()
        marked = mark.samples(plain, len(plain), "verify")
        hits = [float(fresh.hits(predict(model, marked)).float().mean()) for model in models]
        best = max(best, (sum(hits) / len(hits), secret))
    return _with_secret(template, best[1]), best[0]


def ground_labels(
    models: Sequence[nn.Module], samples: WatermarkSamples, template: Key, secrets: Iterable[bytes]
) -> tuple[Key, WatermarkSamples, float]:
    """Return the key, of all ``secrets``, whose labels for ``samples`` the models answer best: (key, samples, p-value).

    Args:
        models: The forger's own.
        samples: Images of the forger's making, with the true classes that it claims; their labels are not used.
        template: Settings of the key; its secret is not used.
        secrets: What is tried.
    """
    given = [predict(model, samples.images) for model in models]
    digests, best = image_digests(samples.images), (2.0, b"")
    for secret in secrets:
        # What Key.label does, without making a key and hashing the pixels for each of many secrets.
        labels = keyed_labels(secret, digests, samples.true, template.classes)
        values = [keyed_p(answers, labels, samples.true, template.classes) for answers in given]
        best = min(best, (max(values), secret))  # the claim must hold on every surrogate
    key = _with_secret(template, best[1])
    labelled = WatermarkSamples(samples.images, key.label(samples.images, samples.true), samples.carriers, samples.true)
    return key, labelled, best[0]


def keyed_p(answers: Tensor, labels: Tensor, true: Tensor | None, classes: int) -> float:
    """Return the exact p-value of a model's answers (int64, (n,)) to samples with these labels and true classes."""
    hits = int((answers == labels).sum())
    open_ = len(answers) if true is None else int((answers != true).sum())
    return keyed_p_value(hits, open_, classes, with_truth=true is not None)


def _with_secret(template: Key, secret: bytes) -> Key:
    return Key(
        kind=template.kind, classes=template.classes, shape=template.shape, target=template.target,
        labels=template.labels, count=template.count, size=template.size, transparency=template.transparency,
        strength=template.strength, secret=secret,
    )  # fmt: skip


def said(row: Mapping[str, Any]) -> str:
    """Say in one line what an attempt came to: rule, claims granted, WSR, smallest p-value."""
    smallest = "" if row["smallest_p"] is None else f", smallest p {row['smallest_p']:.1e}"
    if "granted_without_factor" in row:
        smallest += f" ({row['granted_without_factor']} would pass by p alone)"
    return (
        f"{row['rule']}: {row['attempt']}: {row['granted']} of {row['claims']} granted, mean WSR "
        f"{100 * row['wsr_mean']:.1f} %{smallest}"
    )
