"""Batches of watermark samples: augmented like the training images, a pure function of seed and number."""

import torch
from torch import Tensor

from indelible.base.seeding import generator
from indelible.data.augment import Augmentation, Normalization, augment, normalise, to_float
from indelible.data.share import WHOLE, Share
from indelible.keys.key import WatermarkSamples

__all__ = ["MarkedBatches"]


class MarkedBatches:
    """B_w of every step.

    Args:
        samples: D_w, the embedded watermark samples.
        rows: Images in a batch; samples repeat when there are fewer.
        augmentation: What is done to watermark images.
        normalize: (mean, std) that the model's input is normalised by.
        seed: Decides which watermark images come when.
    """

    def __init__(
        self, samples: WatermarkSamples, rows: int, *, augmentation: Augmentation = "crop-flip",
        normalize: Normalization | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.rows, self.seed = rows, seed
        self._augmentation: Augmentation = augmentation
        self._normalize = normalize
        self._images, self._labels = samples.images, samples.labels

    def batch(self, number: int, like: Tensor, share: Share = WHOLE) -> tuple[Tensor, Tensor]:
        """Return this process' part of batch ``number``: images and labels, in type and on the device of ``like``."""
        self._images, self._labels = self._images.to(like.device), self._labels.to(like.device)
        random = generator(self.seed, "watermark", number)
        rounds = -(-self.rows // len(self._images))
        order = torch.cat([torch.randperm(len(self._images), generator=random) for _ in range(rounds)])
        at = share.of(order[: self.rows]).to(like.device)
        images = to_float(augment(self._images.index_select(0, at), self._augmentation, random, share, self.rows))
        return normalise(images, self._normalize).to(like.dtype), self._labels[at]
