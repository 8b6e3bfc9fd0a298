"""Named data sets: load them when they are there, fetch them when they are not.

Fetched sets live in ``$INDELIBLE_DATA``, or ``~/.cache/indelible`` when that is not set, one folder each.
"""

import os
from pathlib import Path

from indelible.data.images import Data
from indelible.data.sources import SOURCES

__all__ = ["data_root", "load"]


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of fetched sets: ``root``, else ``$INDELIBLE_DATA``, else ``~/.cache/indelible``."""
    return Path(root or os.environ.get("INDELIBLE_DATA") or Path.home() / ".cache" / "indelible").expanduser()


def load(name: str | Path, root: str | Path | None = None) -> tuple[Data, Data]:
    """Return ``(train, test)`` of the data set ``name``.

    Args:
        name: A name that ``indelible data list`` shows.
        root: Where fetched sets live; see :func:`data_root`.
    """
    source = SOURCES[str(name)]
    if source.embedded is not None:
        return source.read(source.embedded)
    raise NotImplementedError(root)
