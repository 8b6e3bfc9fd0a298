"""Numbers for people."""

import pytest

from indelible.report.format import (
    duration,
    equation,
    join_words,
    p_value,
    percent,
    plain_number,
    verdict_note,
    verdict_sign,
)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.0, "0.0"), (1.0, "100.0"), (0.9876, "98.8"), (0.12349, "12.3"), (1e-9, "0.0"), (None, "–")],
)
def test_percent(rate: float | None, text: str) -> None:
    assert percent(rate) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "< 1e-300"), (5e-324, "< 1e-300"), (3.2e-12, "3e-12"), (1e-6, "1e-6"), (9.6e-7, "1e-6"),
        (1e-300, "1e-300"), (2e-4, "2e-4"), (0.0012, "0.0012"), (0.0417, "0.042"), (0.61, "0.61"),
        (1.0, "1"), (None, "–"),
    ],
)  # fmt: skip
def test_p_value(value: float | None, text: str) -> None:
    assert p_value(value) == text


def test_equation_does_not_say_equals_less() -> None:
    assert equation(0.0) == "p < 1e-300"
    assert equation(0.61) == "p = 0.61"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (4.24, "4.2 s"), (59.96, "1 min 00 s"), (185.2, "3 min 05 s"), (7830.0, "2 h 10 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_and_lists() -> None:
    assert [plain_number(value) for value in (12345, 7, 1234.5, 3.14159, None)] == ["12,345", "7", "1,234", "3.14", "–"]
    assert [join_words(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_verdicts_behind_a_rate() -> None:
    assert verdict_note(True, 3e-12) == "owned, p = 3e-12"
    assert verdict_note(False, 0.42) == "not shown, p = 0.42"
    assert verdict_note(None, None) == "no verdict"
    assert [verdict_sign(owned) for owned in ([True], [False], [True, False], [None], [], [None, True])] == [
        "✓", "✗", "1/2 ✓", "?", "?", "✓",
    ]  # fmt: skip
    assert [verdict_sign(owned) for owned in ([True, True], [False, False, None])] == ["2/2 ✓", "0/2 ✗"]
