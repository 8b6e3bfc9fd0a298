"""The ranks of class scores, by hand."""

import numpy as np

from class_scores import rank_scores


def test_ranks_by_hand() -> None:
    # Three marks, one carrier, two classes. Class 0 has the scores 3, 1, 1: the first mark beats two, the others lose
    # to one and tie. Class 1 has 0, 5, 2.
    one = np.array([[[3.0, 0.0]], [[1.0, 5.0]], [[1.0, 2.0]]])
    assert rank_scores(one).tolist() == [[2, -2], [-1, 2], [-1, 0]]
    # A second carrier with the same scores doubles all, and the marks of a class always add up to 0.
    assert rank_scores(np.concatenate([one, one], 1)).tolist() == [[4, -4], [-2, 4], [-2, 0]]
