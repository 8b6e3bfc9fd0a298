"""The exact test of a codebook: against every vector of classes, fractions, and numbers derived by hand."""

import itertools
import math
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from indelible.base.errors import InputError
from indelible.verification.statistics.codebook_tests import (
    Integers,
    answer_counts,
    codebook_p_value,
    codebook_scores,
    held_marks,
    sequential_factor,
    smallest_p_value,
)
from many_draws import codebook_p_values


def integers(rows: list[list[int]] | list[int]) -> Integers:
    return np.array(rows, dtype=np.int64)


def reached(scores: Integers, drawn: Integers | tuple[int, ...]) -> int:
    return sum(int(row[label]) for row, label in zip(scores, drawn, strict=True))


def enumerated(scores: Integers, drawn: Integers) -> Fraction:
    """The definition: the share of all C^K vectors of classes whose score is at least that of ``drawn``."""
    marks, classes = scores.shape
    sums = [reached(scores, draw) for draw in itertools.product(range(classes), repeat=marks)]
    return Fraction(sum(one >= reached(scores, drawn) for one in sums), classes**marks)


def convolved(scores: Integers, drawn: Integers) -> Fraction:
    """The number of ways to each sum in a dictionary, row by row."""
    ways = {0: 1}
    for row in scores.tolist():
        following: Counter[int] = Counter()
        for (total, number), (score, times) in itertools.product(ways.items(), Counter(row).items()):
            following[total + score] += number * times
        ways = dict(following)
    own, (marks, classes) = reached(scores, drawn), scores.shape
    return Fraction(sum(number for total, number in ways.items() if total >= own), classes**marks)


tables = st.tuples(st.integers(1, 5), st.integers(2, 4)).flatmap(
    lambda shape: st.tuples(
        arrays.arrays(np.int64, shape, elements=st.integers(-40, 40)),
        arrays.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)),
    )
)


class TestPValue:
    @pytest.mark.parametrize(("marks", "classes"), [(1, 2), (1, 9), (2, 3), (3, 3), (4, 2), (5, 4), (7, 3), (12, 2)])
    def test_every_vector_of_classes_counted(self, marks: int, classes: int) -> None:
        random = np.random.default_rng(marks * 100 + classes)
        for spread in (1, 3, 200):
            scores = random.integers(-spread, spread + 1, size=(marks, classes))
            drawn = random.integers(classes, size=marks)
            assert codebook_p_value(scores, drawn) == float(enumerated(scores, drawn))

    @given(tables)
    def test_every_vector_of_any_small_table(self, table: tuple[Integers, Integers]) -> None:
        scores, drawn = table
        assert codebook_p_value(scores, drawn) == float(enumerated(scores, drawn))

    @given(tables, st.integers(-1000, 1000), st.randoms(use_true_random=False))
    def test_neither_a_constant_nor_the_names_of_classes_matter(
        self, table: tuple[Integers, Integers], constant: int, random: np.random.RandomState
    ) -> None:
        scores, drawn = table
        p_value = codebook_p_value(scores, drawn)
        shifted = scores.copy()
        shifted[0] += constant
        assert codebook_p_value(shifted, drawn) == p_value
        assert codebook_p_value(7 * scores, drawn) == p_value
        order = list(range(scores.shape[1]))
        random.shuffle(order)
        # Column x of the new table is column order[x] of the old one.
        renamed = np.array([order.index(label) for label in drawn.tolist()])
        assert codebook_p_value(scores[:, order], renamed) == p_value

    def test_by_hand(self) -> None:
        """Two marks, three classes. Sums of all nine vectors: 4 2 0 / 2 0 -2 / 0 -2 -4."""
        scores = integers([[2, 0, -2], [2, 0, -2]])
        for drawn, share in (([0, 0], 1), ([0, 1], 3), ([1, 0], 3), ([1, 1], 6), ([2, 1], 8), ([2, 2], 9)):
            assert codebook_p_value(scores, integers(drawn)) == share / 9

    def test_the_example_of_the_documentation(self) -> None:
        """docs/verification.md: two marks, three classes, four carriers of the classes 0, 0, 0, 1."""
        counts = answer_counts(integers([[1, 1, 1, 1], [2, 2, 2, 1]]), integers([0, 0, 0, 1]), 3)
        assert counts.tolist() == [[0, 3, 0], [0, 0, 3]]
        scores = codebook_scores(counts)
        assert scores.tolist() == [[0, 16, -16], [0, -16, 16]]
        assert codebook_p_value(scores, integers([1, 2])) == 1 / 9
        assert codebook_p_value(scores, integers([1, 1])) == 6 / 9

    def test_ties_count_against_the_key(self) -> None:
        assert codebook_p_value(integers([[5, 5, 0]]), integers([0])) == 2 / 3
        assert codebook_p_value(integers([[5, 5, 0], [1, 1, 1]]), integers([1, 2])) == 2 / 3

    @pytest.mark.parametrize(("marks", "classes"), [(1, 2), (16, 10), (32, 2), (16, 100)])
    def test_equal_scores_say_nothing_and_certain_ones_all_there_is(self, marks: int, classes: int) -> None:
        drawn = np.arange(marks) % classes
        assert codebook_p_value(np.full((marks, classes), -3), drawn) == 1.0
        perfect = np.zeros((marks, classes), dtype=np.int64)
        perfect[np.arange(marks), drawn] = 9
        assert codebook_p_value(perfect, drawn) == smallest_p_value(classes, marks) == 1 / classes**marks
        worst = (drawn + 1) % classes
        assert codebook_p_value(-perfect, drawn) == 1.0
        # All rows miss: every vector is as good.
        assert codebook_p_value(perfect, worst) == 1.0

    @pytest.mark.parametrize(("marks", "classes"), [(16, 100), (24, 100), (32, 100), (32, 2), (16, 10)])
    def test_large_tables_against_fractions(self, marks: int, classes: int) -> None:
        random = np.random.default_rng(marks + classes)
        scores = random.integers(-6, 7, size=(marks, classes))
        drawn = random.integers(classes, size=marks)
        for strength in (0, 6, 6):
            scores[np.arange(marks), drawn] += strength
            assert codebook_p_value(scores, drawn) == float(convolved(scores, drawn))
        assert codebook_p_value(scores, drawn) < 1e-9

    @pytest.mark.parametrize(("marks", "classes"), [(32, 2), (16, 100)])
    def test_speed(self, marks: int, classes: int) -> None:
        """200 carriers a mark, on a model that knows the key and on one that does not: far below 2 s each."""
        random = np.random.default_rng(0)
        answers, drawn = random.integers(classes, size=(marks, 200)), random.integers(classes, size=marks)
        known = np.where(random.random((marks, 200)) < 0.4, drawn[:, None], answers)
        for given_ in (answers, known):
            scores = codebook_scores(answer_counts(given_, None, classes))
            began = time.process_time()
            codebook_p_value(scores, drawn)
            assert time.process_time() - began < 2.0

    def test_the_p_value_is_valid_at_every_level(self) -> None:
        """Over all 3^4 draws for the same answers, p <= x comes in a share of at most x, for every x."""
        scores = codebook_scores(integers([[3, 0, 1], [2, 2, 0], [0, 5, 0], [1, 1, 1]]))
        draws = integers([list(draw) for draw in itertools.product(range(3), repeat=4)])
        values = np.sort(codebook_p_values(scores, draws))
        assert (values >= np.arange(1, 82) / 81 - 1e-12).all()

    @given(tables)
    def test_many_draws_at_once_are_the_single_ones(self, table: tuple[Integers, Integers]) -> None:
        scores, _ = table
        marks, classes = scores.shape
        draws = np.random.default_rng(0).integers(classes, size=(9, marks))
        assert codebook_p_values(scores, draws).tolist() == [codebook_p_value(scores, draw) for draw in draws]

    @pytest.mark.parametrize("drawn", [[0], [0, 3], [-1, 0], [0, 1, 2]])
    def test_classes_that_do_not_fit_are_refused(self, drawn: list[int]) -> None:
        with pytest.raises(InputError, match="2 marks need as many classes from 0 to 2"):
            codebook_p_value(np.zeros((2, 3), dtype=np.int64), integers(drawn))


class TestCounts:
    def test_by_hand(self) -> None:
        """Carriers of classes 0, 0, 2; an answer that is the true class is no evidence."""
        answers = integers([[1, 0, 2], [1, 1, 1], [2, 2, 0]])
        counts = answer_counts(answers, integers([0, 0, 2]), 3)
        assert counts.tolist() == [[0, 1, 0], [0, 3, 0], [1, 0, 2]]
        assert answer_counts(answers, None, 3).tolist() == [[1, 1, 1], [0, 3, 0], [1, 0, 2]]

    def test_scores_by_hand(self) -> None:
        """Roots of 1, 4, 9 and 2 in sixteenths: 16, 32, 48 and 22 (22.6 cut off); the column's sum is taken off."""
        scores = codebook_scores(integers([[0, 3], [8, 1], [0, 0]]))
        assert scores.tolist() == [[3 * 16 - 80, 3 * 32 - 70], [3 * 48 - 80, 3 * 22 - 70], [3 * 16 - 80, 3 * 16 - 70]]
        # With one carrier a mark, it is the count less its average, in other units.
        single = integers([[1, 0, 0], [0, 1, 0], [0, 1, 0]])
        assert (codebook_scores(single) == 6 * (3 * single - single.sum(0))).all()

    @pytest.mark.parametrize("label", range(3))
    def test_one_class_for_everything_says_nothing(self, label: int) -> None:
        counts = np.zeros((5, 3), dtype=np.int64)
        counts[:, label] = 40
        scores = codebook_scores(counts)
        assert not scores.any()
        assert codebook_p_value(scores, integers([label] * 5)) == 1.0

    def test_marks_that_hold(self) -> None:
        scores = integers([[5, 1, 1], [2, 2, 0], [0, 1, 3]])
        assert held_marks(scores, integers([0, 0, 2])) == 2  # a tie does not hold
        assert held_marks(scores, integers([1, 0, 0])) == 0


rows = st.integers(2, 8).flatmap(
    lambda classes: st.tuples(
        arrays.arrays(np.int64, classes, elements=st.integers(0, 300)),
        arrays.arrays(np.int64, st.tuples(st.integers(0, 5), st.just(classes)), elements=st.integers(0, 300)),
    )
)


class TestSequential:
    @given(rows)
    def test_the_mean_over_the_classes_is_one(self, table: tuple[Integers, Integers]) -> None:
        counts, earlier = table
        factors = [sequential_factor(counts, earlier, label) for label in range(len(counts))]
        assert min(factors) >= 0.0
        assert math.fsum(factors) / len(factors) == pytest.approx(1.0, rel=1e-12)

    def test_by_hand(self) -> None:
        # No mark before it: gains 6, 2, 0, 0, mean 2. 0.05 + 0.95 * 6 / 2 = 2.9; 0.05 + 0.95 * 2 / 2 = 1.
        counts, none = integers([6, 2, 0, 0]), np.empty((0, 4), dtype=np.int64)
        assert [sequential_factor(counts, none, label) for label in range(4)] == pytest.approx([2.9, 1.0, 0.05, 0.05])
        # Usual answers 4, 0, 1, 0: gains 2, 2, 0, 0, mean 1. 0.05 + 0.95 * 2 = 1.95.
        earlier = integers([[8, 0, 0, 0], [0, 0, 2, 0]])
        assert [sequential_factor(counts, earlier, label) for label in range(4)] == pytest.approx(
            [1.95, 1.95, 0.05, 0.05]
        )

    def test_nothing_new_is_no_evidence(self) -> None:
        earlier = integers([[5, 5], [5, 5]])
        assert sequential_factor(integers([5, 4]), earlier, 0) == 1.0
        assert sequential_factor(integers([0, 0]), np.empty((0, 2), dtype=np.int64), 1) == 1.0
