"""Canonical JSON (RFC 8785): exactly one byte string for each value; any other is refused.

What is signed must have one form. A reader here takes bytes only if they are exactly what the writer would write, so
that no other spelling of the same value (a space, an upper-case digit, a longer number) goes through.
"""

import json
from collections.abc import Mapping
from typing import Any

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError
from indelible.base.imports import needed


class Hash:
    """As the type of a field: 64 hexadecimal digits in lower case; ``list[Hash]`` is a list of them."""


Kind = Any
"""What :func:`fields_of` takes a field to be: a type, ``Hash``, ``list[Hash]``, or a tuple of these."""


def canonical(value: Any) -> bytes:
    """Return the canonical form of JSON values."""
    written: bytes = needed("rfc8785", extra="evidence", what="evidence").dumps(value)
    return written


def parse(content: bytes, name: str) -> dict[str, Any]:
    """Read a canonical JSON object; ``name`` is that of the file, for errors."""
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


def fields_of(value: Any, kinds: Mapping[str, Kind], name: str) -> None:
    """Refuse what is not an object with the fields ``kinds``, of these types; true and false are no numbers."""
    if not isinstance(value, dict):
        raise DamagedFileError(f"{name} is not an object")
    if value.keys() != kinds.keys():
        odd = sorted(value.keys() ^ kinds.keys())
        raise DamagedFileError(f"{name} lacks, or has unknown, fields: {', '.join(odd)!s:.120}.")
    for field, kind in kinds.items():
        found, allowed = value[field], kind if isinstance(kind, tuple) else (kind,)
        types: Any = tuple({Hash: str, list[Hash]: list}.get(one, one) for one in allowed)
        if not isinstance(found, types) or (isinstance(found, bool) and bool not in types):
            raise DamagedFileError(f"{name} has a field {field!r} of the wrong type ({type(found).__name__}).")
        hashes = [found] if Hash in allowed and found is not None else found if list[Hash] in allowed else []
        if not all(map(is_hash, hashes)):
            raise DamagedFileError(f"{name}: {field} holds something that is not a hash of 64 hexadecimal digits.")


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")
