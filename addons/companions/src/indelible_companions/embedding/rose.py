"""ROSE: ordinary images of the task, whose labels a one-way function of a secret and of the images decides.

Paper: Kallas and Furon, "RoSe: A RObust and SEcure Black-Box DNN Watermarking", WIFS 2022 (arXiv 2206.11024), and the
authors' notebook; compared with APP in Appendix E.1 of the ICCV 2023 paper.

    key images   x_1 .. x_n, drawn from the owner's training images
    labels       y = map(H(secret, x_1 .. x_n)),   H one-way
    embedding    min_theta  L(theta, D with y_i in place of the true labels)
    value        rareness R = -log2 P[as many matches by chance], in bits

Labels, their binding to the whole set, and the rareness are the project's keyed labels (:mod:`indelible.keys.labels`,
:mod:`indelible.verification.statistics.exact_tests`): ROSE is the method that embeds them on images without a mark.

| symbol | name | default | source |
|---|---|---|---|
| n | ``count`` | 40 | notebook: 160 bits of SHA-1 at 4 bits per label of ten classes; 97.5 % in the table is 39 of 40 |
| H | - | HKDF, HMAC-SHA-256, ChaCha20 | ours; the notebook: SHA-1, 4-bit pieces modulo the classes |
| - | ``rows`` | 0 | ours: key images shown beside each batch, as they are. 0: each is seen once per epoch, as there |
| - | run's settings | 100 epochs, lr 0.1 | ICCV 2023; notebook: 200 epochs, batch 64, lr 0.001, no augmentation |

How it differs: a label is never the image's true class, every class is equally likely, and every pixel of every image
counts. docs/methods/rose.md tells why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from indelible.base.registry import MethodInfo
from indelible.data.augment import Normalization
from indelible.embedding.embedding_method import Embedding, EmbeddingMethod
from indelible.embedding.mixing import MarkedBatches, mix
from indelible.keys.key import Key, WatermarkSamples
from indelible.train import CrossEntropy, TrainSettings
from indelible.train.objective import Step


class BesideKeyImages(CrossEntropy):
    """The ordinary loss of a batch with ``rows`` key images beside it, unaugmented; fewer of them repeat."""

    def __init__(
        self, samples: WatermarkSamples, rows: int, *, normalize: Normalization | None, seed: int,
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(label_smoothing)
        self.rows = rows
        self.keys = MarkedBatches(samples, rows, augmentation="none", normalize=normalize, seed=seed)

    def backward(self, step: Step) -> Tensor:
        """Add the gradient of the mean loss over both."""
        images, labels = self.keys.batch(step.number, step.images, step.share)
        joined = torch.cat([step.images, images])
        return super().backward(replace(step, images=joined, labels=torch.cat([step.labels, labels])))

    def passes(self, rows: int) -> int:
        return rows + self.rows


@dataclass(frozen=True, kw_only=True)
class Rose(EmbeddingMethod):
    """ROSE as a value; the table in the module's header explains each setting."""

    count: int = 40
    rows: int = 0

    # A dozen epochs show an image a dozen times: too few to learn a label that nothing else supports.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"rows": 8}
    ranges: ClassVar[Mapping[str, str]] = {"count": "[1, inf)", "rows": "[0, inf)"}

    def key_for(self, key: Key) -> Key:
        """Return a key with keyed labels as it is; of any other its secret, for images without a mark."""
        if key.labels == "keyed":
            return key
        return replace(
            key, kind="plain", labels="keyed", target=None, marks=None, bound=None, count=key.count or self.count,
            scheme="derived", pool=None, fingerprint=None,
        )  # fmt: skip

    def passes(self, train: TrainSettings, images: float) -> float:
        return train.epochs * images * (1 + self.rows / train.batch_size)

    def run(self, job: Embedding) -> None:
        mixed, samples = mix(job.data, job.key)
        ordinary = CrossEntropy(job.settings.label_smoothing)
        beside = BesideKeyImages(
            samples, self.rows, normalize=job.settings.normalize, seed=job.seed,
            label_smoothing=job.settings.label_smoothing,
        )  # fmt: skip
        job.train(mixed, beside if self.rows else ordinary, samples)


INFO = MethodInfo(
    name="rose",
    title="ROSE",
    paper="Kallas and Furon, WIFS 2022",
    summary="Relabel some training images by a one-way function of a secret and of the images.",
    cost="1x plain training",
    build=Rose,
)
