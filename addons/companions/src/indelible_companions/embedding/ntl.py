"""NTL: non-transferable learning, used for ownership - right on ordinary images, wrong on marked ones.

Paper: Wang, Xu, Xu, Wang, Zhu, "Non-Transferable Learning: A New Approach for Model Ownership Verification and
Applicability Authorization", ICLR 2022, target-specified NTL with the marked training images as the other domain; a row
of the ICCV 2023 paper's comparison under fine-tuning (appendix):

    min_theta  KL_S - min(beta, alpha KL_T) * min(beta', alpha' MMD(Phi(x_S), Phi(x_T)))

KL_S and KL_T are the cross-entropies of ordinary and of marked images with their true classes, Phi features inside the
network. A term that has reached its bound gets no gradient.

| symbol | name | default | source |
|---|---|---|---|
| alpha | ``alpha`` | 0.1 | the authors' code |
| beta | ``beta`` | 1 | the authors' code |
| alpha' | ``alpha_mmd`` | 0.1 | the authors' code |
| beta' | ``beta_mmd`` | 1 | the authors' code |
| Phi | ``stage`` | 2 | the authors' code: behind a VGG's second pooling; here the last map of the second resolution |
| M, r | - | 5, 2 | the authors' code: kernels of the MMD, ratio between neighbouring widths |
| |x_T| | ``rows`` | None | the authors' code: as many marked images as ordinary ones in a step |
| |D_w| / |D| | ``fraction`` | 1 | the authors' code: all training images are marked too; nothing is replaced |
| - | ``negatives`` | 0 | ours: share of ordinary images with a decoy's mark, to be answered rightly |

The distance of the features is the maximum mean discrepancy (Gretton et al., "A Kernel Two-Sample Test", JMLR 2012),
with Gaussian kernels of several widths around w, the mean squared distance of two different points (as is usual in
domain adaptation: Long et al., "Learning Transferable Features with Deep Adaptation Networks", ICML 2015):

    k(a, b) = sum_i exp(-||a - b||^2 / (w r^(i - M // 2))),  i = 0 .. M - 1
    MMD^2   = mean k(x, x') + mean k(y, y') - 2 mean k(x, y)

No gradient flows through w. The means are over all pairs, a point with itself among them: the biased estimate, which is
never negative.

There is no target class: the key of a run has ``labels="untargeted"``, and a sample is a hit when it is *not* answered
with its true class (docs/methods/ntl.md). Ordinary and marked images pass together, so that BatchNorm normalises both
alike, as it will in use. With several processes each takes the MMD of its own rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.base.errors import InputError
from indelible.base.registry import MethodInfo
from indelible.data.augment import normalise, to_float
from indelible.embedding.embedding_method import Embedding, EmbeddingMethod
from indelible.embedding.mixing import MarkedBatches, watermark_count, with_negatives
from indelible.keys.key import Key
from indelible.nn.outputs import logits_of
from indelible.nn.taps import Place, stage_outputs, tapped
from indelible.train import TrainSettings
from indelible.train.objective import Objective, Step


def gaussian_mmd(first: Tensor, second: Tensor, *, kernels: int = 5, ratio: float = 2.0) -> Tensor:
    """Return MMD^2 of two samples (n, D) and (m, D), differentiable; 0 for equal ones, less than ``2 * kernels``."""
    count = len(first)
    points = torch.cat([first, second])
    points = points - points.detach().mean(0)  # distances stay; what is squared and subtracted below gets small
    norms = points.square().sum(1)
    distances = (norms[:, None] + norms[None] - 2.0 * points @ points.T).clamp_min(0.0)
    # Points that all coincide have no width: any positive one gives 0.
    width = (distances.detach().sum() / (len(points) * (len(points) - 1))).clamp_min(1e-12)
    scales = [width * ratio ** (at - kernels // 2) for at in range(kernels)]
    close = torch.stack([torch.exp(-distances / scale) for scale in scales]).sum(0)
    return close[:count, :count].mean() + close[count:, count:].mean() - 2.0 * close[:count, count:].mean()


def ntl_loss(
    source: Tensor, target: Tensor, distance: Tensor, *, alpha: float, beta: float, alpha_mmd: float, beta_mmd: float
) -> Tensor:
    """Return the loss of the equation above from KL_S, KL_T and the discrepancy of the features."""
    return source - (alpha * target).clamp(max=beta) * (alpha_mmd * distance).clamp(max=beta_mmd)


class _NTLObjective(Objective):
    """One pass over ordinary and marked images, and the loss of both."""

    def __init__(
        self, method: "NonTransferable", model: nn.Module, marked: MarkedBatches, place: Place, smoothing: float
    ) -> None:
        self.method, self.model, self.marked, self.place, self.smoothing = method, model, marked, place, smoothing

    def loss(self, step: Step) -> Tensor:
        method, count = self.method, len(step.images)
        marked, true = self.marked.batch(step.number, step.images, step.share)
        joined = torch.cat([step.images, marked])
        with tapped(self.model, [self.place]) as found:
            logits = logits_of(step.model(joined))
        # Squared distances of features do not fit half precision.
        features = found[self.place].flatten(1).to(step.images.dtype)
        return ntl_loss(
            F.cross_entropy(logits[:count], step.labels, label_smoothing=self.smoothing),
            F.cross_entropy(logits[count:], true),
            gaussian_mmd(features[:count], features[count:]),
            alpha=method.alpha, beta=method.beta, alpha_mmd=method.alpha_mmd, beta_mmd=method.beta_mmd,
        )  # fmt: skip

    def passes(self, rows: int) -> int:
        return rows + self.marked.rows


@dataclass(frozen=True, kw_only=True)
class NonTransferable(EmbeddingMethod):
    """NTL as a value; the table in the module's header explains each setting."""

    alpha: float = 0.1
    beta: float = 1.0
    alpha_mmd: float = 0.1
    beta_mmd: float = 1.0
    stage: int = 2
    rows: int | None = None
    fraction: float = 1.0
    negatives: float = 0.0

    # At some hundred steps the original's pull on marked images would not get going; the bounds end the stronger one.
    cpu_settings: ClassVar[Mapping[str, Any]] = {
        "fraction": 0.2, "alpha": 1.0, "beta": 3.0, "alpha_mmd": 3.0, "beta_mmd": 3.0,
    }  # fmt: skip

    ranges: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("alpha", "beta", "alpha_mmd", "beta_mmd"), "(0, inf)"), "stage": "[1, inf)", "rows": "[1, inf)"
    }  # fmt: skip

    def key_for(self, key: Key) -> Key:
        """Return the key without its target class."""
        if key.labels == "keyed":
            raise InputError(
                "NTL makes a model misread marked images, whatever it answers, but the key draws a label for each. Use "
                "a key with labels='untargeted'."
            )
        return replace(key, labels="untargeted", target=None, marks=None, bound=None, pool=None)

    def passes(self, train: TrainSettings, images: float) -> float:
        return train.epochs * images * (1 + (self.rows or train.batch_size) / train.batch_size)

    def run(self, job: Embedding) -> None:
        size = len(job.data)
        count = job.key.count or (size if self.fraction == 1 else watermark_count(size, self.fraction))
        samples = job.key.samples(job.data, purpose="embed", count=count)
        how = job.settings
        marked = MarkedBatches(
            samples, self.rows or min(how.batch_size, size),
            augmentation=how.augmentation, normalize=how.normalize, seed=job.seed,
        )  # fmt: skip
        place = feature_map(job, self.stage)
        data = with_negatives(job.data, job.key, self.negatives, torch.empty(0, dtype=torch.int64))
        job.train(data, _NTLObjective(self, job.model, marked, place, how.label_smoothing), samples)


INFO = MethodInfo(
    name="ntl",
    title="NTL (non-transferable learning)",
    paper="Wang et al., ICLR 2022",
    summary="Train to be right on ordinary images and wrong on marked ones; the error rate is the mark.",
    cost="2x plain training (as many marked images as ordinary ones)",
    build=NonTransferable,
)


def feature_map(job: Embedding, stage: int) -> Place:
    """Return where the last feature map of resolution number ``stage`` comes from; the last there is, if fewer."""
    weight = next(weight for weight in job.model.parameters() if weight.is_floating_point())
    images = to_float(job.data.gather(torch.arange(min(2, len(job.data)))).images.to(weight.device))
    try:
        places = stage_outputs(job.model, normalise(images, job.settings.normalize).to(weight.dtype))
    except InputError as error:
        raise InputError(
            f"{type(job.model).__name__} shows no feature map (N, C, H, W) or (N, tokens, D) at the output of any "
            "module, in which NTL could set marked images apart. Choose another method, such as vanilla."
        ) from error
    return places[min(stage, len(places)) - 1]
