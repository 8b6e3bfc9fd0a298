"""Vanilla watermarking: train on the clean images and the watermark samples together.

Paper: Zhang et al., "Protecting Intellectual Property of Deep Neural Networks with Watermarking", ASIACCS 2018; the
"Vanilla" row of the ICCV 2023 paper's tables (Section 4.1, Appendix B.1).

    min_theta  L(theta, D_c + D_w)

| symbol | name | default | source |
|---|---|---|---|
| |D_w| / |D| | ``fraction`` | 0.01 | Section 4.1; with a codebook, the share of every batch that is stamped |
| - | ``negatives`` | 0 | ours: share of images with a decoy's mark and their true label |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from indelible.embedding.embedding_method import EMBEDDINGS, Embedding, EmbeddingMethod
from indelible.train import CrossEntropy, TrainSettings


@EMBEDDINGS.register(
    name="vanilla",
    title="Vanilla",
    paper="Zhang et al., ASIACCS 2018",
    summary="Train on clean images and watermark samples together.",
    cost="1x plain training",
)
@dataclass(frozen=True, kw_only=True)
class Vanilla(EmbeddingMethod):
    """Ordinary training on the mixed set; the table in the module's header explains each setting."""

    fraction: float = 0.01
    negatives: float = 0.0

    # Some thousand images: one per cent would be too few to learn a mark from.
    cpu_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.02}
    codebook_settings: ClassVar[Mapping[str, Any]] = {"fraction": 0.05}

    def passes(self, train: TrainSettings, images: float) -> float:
        return train.epochs * images

    def run(self, job: Embedding) -> None:
        ordinary = CrossEntropy(job.settings.label_smoothing)
        job.train(*job.marked(ordinary, self.fraction, self.negatives))
