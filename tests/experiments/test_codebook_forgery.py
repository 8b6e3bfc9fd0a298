"""The forger of a codebook pays for every draw: the best of N reaches x / N with probability at most x."""

import numpy as np

from codebook_forgery import best_draw, secret_draws
from indelible.keys.derive import expand
from indelible.keys.key import Key
from indelible.verification.statistics.codebook_tests import codebook_p_value, codebook_scores
from tests.conftest import SECRET, SHAPE

COUNTS = np.random.default_rng(0).multinomial(30, [0.4, 0.3, 0.2, 0.1], size=16)


def test_draws_are_those_of_keys() -> None:
    draws = secret_draws(SECRET, 3, classes=4, marks=16)
    assert draws.shape == (3, 16)
    for number, drawn in enumerate(draws):
        key = Key.create(kind="noise", classes=4, shape=SHAPE, secret=expand(SECRET, f"codebook/{number}"))
        assert key.codebook().classes.tolist() == drawn.tolist()


def test_the_best_draw_is_that_of_a_search_one_by_one() -> None:
    draws = secret_draws(SECRET, 50, classes=4, marks=16)
    tables = [COUNTS, COUNTS[::-1]]
    values = [max(codebook_p_value(codebook_scores(table), drawn) for table in tables) for drawn in draws]
    assert best_draw(tables, draws) == (int(np.argmin(values)), min(values))


def test_the_best_of_many_gains_no_more_than_the_bound() -> None:
    """200 forgers with 100 draws each on the same answers: N times the smallest p-value is a valid p-value."""
    draws = np.random.default_rng(1).integers(4, size=(200, 100, 16))
    smallest = np.array([100 * best_draw([COUNTS], tried)[1] for tried in draws])
    for level in (0.5, 0.2, 0.05):
        share = float((smallest <= level).mean())
        assert share <= level + 4 * np.sqrt(level * (1 - level) / 200)
    assert float((smallest <= 0.5).mean()) > 0.2, "and the draws do gain what is paid for"
