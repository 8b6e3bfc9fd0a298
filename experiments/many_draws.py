"""Exact p-values of many draws of a codebook's classes at once, for forgers and for measurements of the null."""

import numpy as np
import numpy.typing as npt

from indelible.verification.statistics.codebook_tests import Integers, class_losses, loss_counts

__all__ = ["codebook_p_values"]


def codebook_p_values(scores: Integers, draws: Integers) -> npt.NDArray[np.float64]:
    """Return the exact p-value of each of many draws (int64, (M, K)) for the same answers: float64 (M,)."""
    losses = class_losses(scores)
    lost = losses[np.arange(len(losses)), draws].sum(1)
    ways, width = loss_counts(losses, int(lost.max()))
    total, field = int(losses.shape[1]) ** len(losses), (1 << width) - 1
    found: dict[int, float] = {}
    running = place = 0
    for loss in np.unique(lost).tolist():
        # Add the fields up to this loss; those below it were added before.
        piece = (ways >> place * width) & ((1 << (loss + 1 - place) * width) - 1)
        while piece:
            running, piece = running + (piece & field), piece >> width
        place, found[loss] = loss + 1, running / total
    return np.array([found[loss] for loss in lost.tolist()])
