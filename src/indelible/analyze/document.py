"""An analysis on disk: one folder that holds the numbers behind a figure, and whatever is drawn from them.

| file | what |
|---|---|
| ``analysis.json`` | every number, the settings, the versions; written last |
| ``table.csv`` | the same numbers as one flat table, for a spreadsheet |
| ``figure.png``, ``figure.svg`` | drawn from ``analysis.json`` alone, if matplotlib is installed |
| ``points.jsonl`` | what a long analysis has measured so far; it goes on from there |

A result is a frozen dataclass of numbers, texts, tuples and other such dataclasses, so that reading it back needs no
code of its own: :func:`rebuild` follows the type hints.
"""

import csv
import io
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from indelible.base.errors import DamagedFileError
from indelible.base.files import write_json, write_text
from indelible.base.records import plain, versions

__all__ = ["ANALYSIS", "Analysis", "rebuild", "write_analysis"]

ANALYSIS = "analysis.json"
_TABLE = "table.csv"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Base of results: the numbers behind one figure.

    Attributes:
        figure: The name of the command that makes it.
    """

    figure: ClassVar[str]

    def rows(self) -> list[dict[str, Any]]:
        """Return the numbers as rows of one flat table."""
        raise NotImplementedError

    def sentences(self) -> list[str]:
        """Return what the numbers say, one sentence each."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        numbers = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return {"format": _FORMAT, "figure": self.figure, "versions": plain(versions()), **numbers}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild a result from :meth:`to_json`.

        Raises:
            DamagedFileError: The value is not such a result, or of a format that this version does not read.
        """
        if not isinstance(value, Mapping) or value.get("format") != _FORMAT or value.get("figure") != cls.figure:
            raise DamagedFileError(f"expected an analysis {cls.figure!r} of format {_FORMAT}. Make it again.")
        try:
            found: Self = rebuild(cls, value)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"the analysis {cls.figure!r} is damaged ({error!r}). Make it again.") from error
        return found


def rebuild(hint: Any, value: Any) -> Any:
    """Turn JSON values back into what ``hint`` says: dataclasses, tuples, mappings, numbers, texts, or None."""
    origin = get_origin(hint)
    found: Any
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        found = hint(**{field.name: rebuild(hints[field.name], value[field.name]) for field in fields(hint)})
    elif origin in {Union, types.UnionType}:
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        found = None if value is None else rebuild(kinds[0], value)
    elif origin is tuple:
        kinds = list(get_args(hint))
        each = [kinds[0]] * len(value) if kinds[-1] is Ellipsis else kinds
        found = tuple(rebuild(kind, item) for kind, item in zip(each, value, strict=True))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        found = {str(key): rebuild(get_args(hint)[1], item) for key, item in value.items()}
    elif hint is float:
        found = float(value)
    else:
        found = value
    return found


def write_analysis(folder: str | Path, analysis: Analysis) -> Path:
    """Write the table, then ``analysis.json``; return the folder."""
    place = Path(folder)
    write_text(place / _TABLE, _as_csv(analysis.rows()))
    write_json(place / ANALYSIS, analysis.to_json())
    return place


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
