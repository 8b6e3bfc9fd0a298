"""Canonical JSON (RFC 8785): the one byte string that stands for a value, and nothing else is accepted.

What is signed must have one form. A reader here takes bytes only if they are exactly what the writer would write, so
that no other spelling of the same value (a space, an upper-case digit, a longer number) goes through.
"""

import json
from collections.abc import Mapping
from typing import Any

from indelible.base.errors import DamagedFileError
from indelible.base.extras import needed

__all__ = ["canonical", "fields_of", "parse"]


def canonical(value: Any) -> bytes:
    """Return the canonical form of JSON values."""
    written: bytes = needed("rfc8785", extra="evidence", what="evidence").dumps(value)
    return written


def parse(content: bytes, name: str) -> dict[str, Any]:
    """Read a canonical JSON object.

    Raises:
        DamagedFileError: Not JSON, not an object, or not in canonical form.
    """
    library = needed("rfc8785", extra="evidence", what="evidence")
    try:
        value = json.loads(content, parse_constant=_refuse)
        same = isinstance(value, dict) and library.dumps(value) == content
    except (ValueError, RecursionError, library.CanonicalizationError) as error:
        raise DamagedFileError(f"{name} is not canonical JSON ({error!s:.120}).") from error
    if not same:
        raise DamagedFileError(f"{name} is not a JSON object in its canonical form.")
    found: dict[str, Any] = value
    return found


def fields_of(value: Mapping[str, Any], kinds: Mapping[str, type | tuple[type, ...]], name: str) -> None:
    """Refuse an object that has other fields than ``kinds``, or of other types; true and false are no numbers."""
    if value.keys() != kinds.keys():
        odd = sorted(value.keys() ^ kinds.keys())
        raise DamagedFileError(f"{name} lacks, or has unknown, fields: {', '.join(odd)!s:.120}.")
    for field, kind in kinds.items():
        found = value[field]
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise DamagedFileError(f"{name} has a field {field!r} of the wrong type ({type(found).__name__}).")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")
