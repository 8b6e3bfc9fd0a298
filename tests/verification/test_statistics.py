"""Statistics against hand-derived numbers, SciPy's own tests, and slow references that count every case."""

import itertools
import math

import pytest
import torch
from scipy.stats import binom, binomtest, combine_pvalues, false_discovery_control

from indelible.base.errors import InputError
from indelible.verification.findings import paired_finding
from indelible.verification.planner import QueryPlan, needed_hits, plan
from indelible.verification.statistics.exact_tests import (
    binomial_tail,
    decoys_for,
    fisher_p_value,
    holm,
    keyed_p_value,
    keyed_rate,
    mcnemar,
    rank_p_value,
)


class TestRank:
    def test_by_hand(self) -> None:
        assert rank_p_value(5, [1, 2, 3]) == 1 / 4
        assert rank_p_value(5, [5, 2, 7]) == 3 / 4  # a tie counts against the key
        assert rank_p_value(0, [0] * 9) == 1.0

    def test_every_rank_is_equally_likely(self) -> None:
        """Over all orders of distinct hits, the key's p-value is uniform on k / (N + 1)."""
        found = sorted(rank_p_value(order[0], order[1:]) for order in itertools.permutations(range(4)))
        assert found == sorted([1 / 4, 2 / 4, 3 / 4, 1.0] * 6)

    @pytest.mark.parametrize(("alpha", "count"), [(0.05, 19), (0.01, 99), (0.001, 999), (0.5, 1), (0.9, 1), (0.03, 33)])
    def test_decoys_for(self, alpha: float, count: int) -> None:
        assert decoys_for(alpha) == count
        assert rank_p_value(1, [0] * count) <= alpha * (1 + 1e-12)
        with pytest.raises(InputError, match="alpha"):
            decoys_for(0.0)
        with pytest.raises(InputError, match="none"):
            rank_p_value(1, [])


class TestKeyed:
    def test_every_draw_of_labels_counted(self) -> None:
        """Four classes, five samples, answers fixed: enumerate all 3^5 draws of labels and count the hits."""
        true, given = [0, 1, 2, 3, 0], [0, 2, 2, 0, 3]  # samples 0 and 2 are answered with their true class
        draws = list(itertools.product(*([label for label in range(4) if label != own] for own in true)))
        assert len(draws) == 3**5
        for hits in range(4):
            share = sum(sum(a == b for a, b in zip(given, draw, strict=True)) >= hits for draw in draws) / len(draws)
            assert keyed_p_value(hits, 3, 4, with_truth=True) == pytest.approx(share)

    def test_images_without_a_true_class(self) -> None:
        draws = list(itertools.product(range(3), repeat=4))
        share = sum(sum(label == 1 for label in draw) >= 2 for draw in draws) / len(draws)
        assert keyed_p_value(2, 4, 3, with_truth=False) == pytest.approx(share)

    def test_bounds(self) -> None:
        assert keyed_rate(10, with_truth=True) == pytest.approx(1 / 9)
        assert keyed_p_value(0, 0, 10, with_truth=True) == 1.0
        with pytest.raises(InputError, match="3 classes"):
            keyed_rate(2, with_truth=True)
        with pytest.raises(InputError, match="not a count"):
            keyed_p_value(1, 0, 10, with_truth=True)


class TestMcNemar:
    @pytest.mark.parametrize(("gained", "lost"), [(9, 1), (5, 5), (0, 4), (30, 2)])
    def test_is_scipys_sign_test(self, gained: int, lost: int) -> None:
        assert mcnemar(gained, lost) == pytest.approx(binomtest(gained, gained + lost, alternative="greater").pvalue)

    def test_by_hand(self) -> None:
        assert mcnemar(3, 0) == pytest.approx(1 / 8)
        assert mcnemar(0, 0) == 1.0
        with pytest.raises(InputError, match="not counts"):
            mcnemar(-1, 0)


class TestPaired:
    def test_by_hand(self) -> None:
        """Of eight carriers one hits as it is; the mark wins six of the other seven and loses that one."""
        before = torch.tensor([True] + [False] * 7)
        after = torch.tensor([False] + [True] * 6 + [False])
        found = paired_finding(before, after, [before, torch.zeros(8, dtype=torch.bool)], alpha=1.0)
        assert (found.hits, found.trials) == (6, 8)
        assert [found.counts[name] for name in ("gained", "lost", "free")] == [6, 1, 7]
        # No decoy won anything, so that the null rate is one half: P[Bin(7, 1/2) >= 6] = 8 / 128 in both tests.
        assert (found.null_rate, found.decoy_rate) == (0.5, 0.0)
        assert found.counts["mcnemar_p"] == pytest.approx(8 / 128)
        assert found.p_value == pytest.approx(8 / 128 + 0.1)

    def test_where_no_carrier_can_be_won(self) -> None:
        every = torch.ones(4, dtype=torch.bool)
        found = paired_finding(every, every, [every], alpha=1.0)
        assert (found.p_value, found.null_rate, found.decoy_rate, found.counts["free"]) == (1.0, 1.0, None, 0)


class TestHolm:
    def test_by_hand(self) -> None:
        # sorted 0.01 0.03 0.04: 3 * 0.01, 2 * 0.03, 1 * 0.04 raised to the one before
        assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
        assert holm([0.6, 0.7]) == [1.0, 1.0]
        assert holm([]) == []
        with pytest.raises(InputError, match=r"\[0, 1\]"):
            holm([1.5])

    def test_between_the_plain_and_the_bonferroni_values(self) -> None:
        values = [0.001, 0.2, 0.013, 0.013, 0.9]
        for plain, adjusted, found in zip(values, holm(values), false_discovery_control(values), strict=True):
            assert plain <= adjusted <= min(1.0, 5 * plain)
            assert adjusted >= found - 1e-12  # controlling every error is stricter than controlling a share of them


class TestPlanner:
    @pytest.mark.parametrize(("wsr", "queries"), [(0.9, 13), (0.7, 26), (0.5, 54), (0.3, 178)])
    def test_known_plans(self, wsr: float, queries: int) -> None:
        found = plan(wsr, alpha=1e-6, power=0.99, null_rate=0.1)
        assert found.queries == queries
        assert found.power >= 0.99
        fewer = needed_hits(queries - 1, 0.1, 1e-6)
        assert fewer is not None
        assert binomial_tail(fewer, queries - 1, wsr) < 0.99

    @pytest.mark.parametrize(("hits", "trials"), [(14, 30), (18, 50), (28, 100)])
    def test_known_hits(self, hits: int, trials: int) -> None:
        assert needed_hits(trials, 0.1, 1e-6) == hits
        assert needed_hits(5, 0.1, 1e-6) is None

    def test_power_by_the_slow_sum(self) -> None:
        wsr, rate, alpha = 0.5, 1 / 9, 1e-3
        found = plan(wsr, alpha=alpha, power=0.6, null_rate=rate)
        queries = found.queries
        chances = [math.comb(queries, hits) * wsr**hits * (1 - wsr) ** (queries - hits) for hits in range(queries + 1)]
        shown = [float(binom.sf(hits - 1, queries, rate)) <= alpha for hits in range(queries + 1)]
        total = sum(chance for chance, enough in zip(chances, shown, strict=True) if enough)
        assert found.power == pytest.approx(total)

    def test_a_plan_is_json(self) -> None:
        found = plan(0.5, null_rate=1 / 9)
        assert isinstance(found, QueryPlan)
        assert found.to_json()["queries"] == found.queries

    def test_impossible_plans_are_refused(self) -> None:
        with pytest.raises(InputError, match="cannot be told"):
            plan(0.1, null_rate=0.1)
        with pytest.raises(InputError, match="alpha"):
            plan(0.5, alpha=0)
        with pytest.raises(InputError, match="takes more than"):
            plan(0.1000001, null_rate=0.1)


class TestFisher:
    def test_by_hand(self) -> None:
        assert fisher_p_value([0.3]) == pytest.approx(0.3)
        # x = 0.01: 0.01 * (1 + log 100) = 0.01 * 5.60517
        assert fisher_p_value([0.1, 0.1]) == pytest.approx(0.0560517, rel=1e-6)
        assert fisher_p_value([1.0, 1.0, 1.0]) == 1.0

    def test_as_in_scipy(self) -> None:
        values = [0.02, 0.5, 1e-4, 0.9]
        assert fisher_p_value(values) == pytest.approx(combine_pvalues(values, method="fisher").pvalue, rel=1e-9)
