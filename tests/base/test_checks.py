"""Every kind of setting: what fits, what does not, and the words for it."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from indelible.base.checks import check_settings
from indelible.base.errors import InputError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Example:
    rate: float = 0.1
    count: int = 1
    flag: bool = True
    word: Literal["a", "b"] = "a"
    limit: float | None = None
    pair: tuple[float, float] = (0.0, 1.0)
    many: tuple[float, ...] = ()
    nested: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    constant: ClassVar[int] = 3


GOOD: dict[str, list[Any]] = {
    "rate": [0.5, 1], "count": [3], "flag": [False], "word": ["a"], "limit": [None, 2.0], "pair": [(1, 2.0), [0, 1]],
    "many": [(), [1, 2, 3]], "nested": [None, ([0.1], [0.2])],
}  # fmt: skip
BAD: dict[str, list[Any]] = {
    "rate": ["x", None, True, [1]], "count": [1.5, "1", False], "flag": [1, "yes"], "word": [1], "limit": ["none"],
    "pair": [(1,), (1, "x"), 3], "many": [["x"], 1], "nested": [[1, 2], ([0.1],)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_what_fits(name: str, value: Any) -> None:
    check_settings(Example, {name: value}, "setting")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_does_not(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"the setting '{name}' must be .*, but came as"):
        check_settings(Example, {name: value}, "setting")


@pytest.mark.parametrize("name", ["speed", "constant"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownNameError, match="count, flag, limit"):
        check_settings(Example, {name: 1}, "setting")
