"""IDX, the format of MNIST and its relatives.

Source: http://yann.lecun.com/exdb/mnist/ ("the IDX file format"): two zero bytes, a type byte, the number of axes,
each axis as a big-endian 32-bit integer, then the values. Only unsigned bytes (type 0x08) occur in these sets.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError

__all__ = ["parse_idx", "read_idx"]

_UNSIGNED_BYTE = 0x08
_GZIP = b"\x1f\x8b"


def read_idx(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or not.

    Raises:
        DamagedFileError: The file is missing, truncated, too long, or of another format.
    """
    try:
        content = Path(path).read_bytes()
        if content[:2] == _GZIP:
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path} does not exist. Fetch the data set again.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFileError(f"{path} is not a whole gzip file ({error}). Fetch it again.") from error
    return parse_idx(content, str(path))


def parse_idx(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Return the array in ``content``; ``name`` is what errors call the file."""
    if len(content) < 4 or content[:2] != b"\x00\x00" or content[2] != _UNSIGNED_BYTE or content[3] == 0:
        raise DamagedFileError(
            f"{name} is not an IDX file of unsigned bytes: it begins with {content[:4].hex() or 'nothing'}, "
            "expected 000008 and the number of axes. Fetch it again."
        )
    axes = content[3]
    start = 4 + 4 * axes
    if len(content) < start:
        raise DamagedFileError(f"{name} ends inside its header. Fetch it again.")
    shape: tuple[Any, ...] = tuple(int(n) for n in np.frombuffer(content, ">u4", axes, 4))
    wanted, found = math.prod(shape), len(content) - start
    if wanted != found:
        raise DamagedFileError(f"{name} must hold {wanted:,} bytes of values, but holds {found:,}. Fetch it again.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
