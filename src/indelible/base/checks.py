"""Settings of the wrong type are refused by name, before anything is computed with them."""

import types
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from indelible.base.errors import InputError, UnknownNameError

__all__ = ["check_settings", "setting_names"]


def setting_names(kind: type[Any]) -> list[str]:
    """Return the names of a dataclass's settings (class variables are none)."""
    return [field.name for field in fields(kind)]


def check_settings(kind: type[Any], values: Mapping[str, Any], what: str) -> None:
    """Refuse settings that ``kind`` does not have, or whose type is wrong.

    Args:
        kind: A dataclass.
        values: Settings for it.
        what: How to call a setting in an error, for example ``"training setting"``.
    """
    names = setting_names(kind)
    hints = get_type_hints(kind)
    for name, value in values.items():
        if name not in names:
            raise UnknownNameError(what, name, names)
        if not _fits(value, hints[name]):
            raise InputError(f"the {what} {name!r} must be {_describe(hints[name])}, but came as {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        fits = True
    elif origin in {Union, types.UnionType}:
        fits = any(_fits(value, part) for part in get_args(hint))
    elif origin is Literal:
        # Which words are allowed is said by the class itself, with the choices.
        fits = isinstance(value, str)
    elif hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif hint is int:
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif origin is tuple:
        parts = get_args(hint)
        items = list(value) if isinstance(value, tuple | list) else None
        fits = items is not None and _fit_items(items, parts)
    else:
        fits = isinstance(value, origin or hint)
    return fits


def _fit_items(items: Iterable[Any], parts: tuple[Any, ...]) -> bool:
    values = list(items)
    if len(parts) == 2 and parts[1] is Ellipsis:
        return all(_fits(value, parts[0]) for value in values)
    return len(values) == len(parts) and all(map(_fits, values, parts))


def _describe(hint: Any) -> str:
    words = {float: "a number", int: "a whole number", bool: "true or false", str: "text", type(None): "null"}
    if hint in words:
        return words[hint]
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:
        return " or ".join(_describe(part) for part in get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return "a list of numbers" if origin is tuple else f"a {getattr(hint, '__name__', hint)}"
