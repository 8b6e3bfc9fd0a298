"""The tables of README and docs, from cells made by hand."""

from typing import Any

from write_tables import worst_table


def _cell(method: str, attack: str | None, p_value: float, *, ba: float = 0.76, seed: int = 0) -> dict[str, Any]:
    measured = {"ba": ba, "wsr": 0.5, "p_value": p_value, "owned": p_value <= 1e-6}
    return {"kind": "content", "method": method, "attack": attack, "seed": seed, "measured": measured}


def test_the_short_table_has_verdicts_before_and_after_attacks() -> None:
    cells = [
        _cell("unmarked", None, 0.7, ba=0.77), _cell("app", None, 1e-16), _cell("app", "ft", 1e-9),
        _cell("app", "nnl", 1.1e-6), _cell("app", None, 1e-15, ba=0.78, seed=1),
    ]  # fmt: skip
    lines = worst_table(cells).splitlines()
    assert lines[2] == "| content | no mark | 77.0 | 0 of 1 | - | - |"
    assert lines[3] == "| content | APP | 77.0 ± 1.4 | 2 of 2 | 1 of 2 | 1.1e-06 |"
    assert lines[5:] == [
        "APP is OWNED in 3 of the 4 cells that were run; the largest p-value is 1.1e-06.",
        "It loses 1.0 points of BA against the same training without a mark (1.0).",
    ]
