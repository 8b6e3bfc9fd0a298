"""Canonical JSON (RFC 8785): exactly one byte string for each value; any other is refused.

What is signed must have one form. A reader here takes bytes only if they are exactly what the writer would write, so
that no other spelling of the same value (a space, an upper-case digit, a longer number) goes through.
"""

import json
from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError
from indelible.base.imports import needed


class Hash:
    """As the type of a field: 64 hexadecimal digits in lower case; ``list[Hash]`` is a list of them."""


def require(holds: bool, otherwise: str) -> None:
    """Refuse what was read unless ``holds``; ``otherwise`` says what is wrong with it."""
    if not holds:
        raise DamagedFileError(otherwise)


def canonical(value: Any) -> bytes:
    """Return the canonical form of JSON values."""
    written: bytes = _library().dumps(value)
    return written


def parse(content: bytes, name: str) -> dict[str, Any]:
    """Read a canonical JSON object; ``name`` is that of the file, for errors."""
    library = _library()  # a package that is missing is no fault of the file
    try:
        value = json.loads(content, parse_constant=_refuse)
        same = isinstance(value, dict) and library.dumps(value) == content
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{name} is not canonical JSON ({error!s:.120}).") from error
    require(same, f"{name} is not a JSON object in its canonical form.")
    found: dict[str, Any] = value
    return found


def parse_document(content: bytes, name: str, version: int, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Read a canonical JSON object of the format ``version`` with exactly the fields ``kinds`` besides."""
    found = parse(content, name)
    given = found.get("format")
    require(
        given == version, f"{name} has format {given!r:.20}, this version reads {version}. Use the one that made it."
    )
    fields_of(found, {"format": int, **kinds}, name)
    return found


def fields_of(value: Any, kinds: Mapping[str, Any], name: str) -> None:
    """Refuse what is not an object with the fields ``kinds``, of these types; true and false are no numbers."""
    if not isinstance(value, dict):
        raise DamagedFileError(f"{name} is not an object")
    odd = sorted(value.keys() ^ kinds.keys())
    require(not odd, f"{name} lacks, or has unknown, fields: {', '.join(odd)!s:.120}.")
    for field, kind in kinds.items():
        wrong = f"is of the wrong type, or not a hash of 64 hexadecimal digits: {value[field]!r:.40}"
        require(_fits(value[field], kind), f"{name}: {field} {wrong}.")


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(value, one) for one in get_args(kind))
    if kind == list[Hash]:
        return isinstance(value, list) and all(map(is_hash, value))
    return is_hash(value) if kind is Hash else isinstance(value, kind) and not isinstance(value, bool)


def _library() -> Any:
    return needed("rfc8785", extra="evidence", what="evidence")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
