"""Read pickles that hold nothing but arrays, numbers, strings, lists and dictionaries - without ever running them.

A pickle is a program: it may name any function and call it. This reader knows the four names that a numpy array is
stored with, and gives each a harmless stand-in; every other name is refused before anything is called. numpy itself
takes no part in unpickling, so an array's type and length are checked here and the numpy version does not matter.

Source of the layout: ``numpy.ndarray.__reduce__`` (state: version, shape, dtype, Fortran order, bytes). Pickles written
by Python 2 (the official CIFAR files, protocol 2) hold their strings as bytes; so do all results of this reader.
"""

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError

_TYPES = frozenset({"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"})
_ARRAYS = frozenset({"numpy.core.multiarray", "numpy._core.multiarray"})
_LIMIT = 1 << 30


class _Type:
    """Stands for ``numpy.dtype``: remembers the type's code."""

    def __init__(self, code: Any = b"", *_: Any) -> None:
        self.code, self.order = _text(code), "<"

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, subdtype, names, fields, size, alignment, flags)
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("an array with fields")
        self.order = _text(state[1])
        if self.order not in {"<", ">", "|", "="}:
            raise pickle.UnpicklingError(f"an array of byte order {self.order}")


class _Array:
    """Stands for ``numpy.ndarray``: remembers what the array is made of."""

    state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> npt.NDArray[Any]:
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise pickle.UnpicklingError("an array without content")
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Type) or not isinstance(raw, bytes) or kind.code not in _TYPES:
            raise pickle.UnpicklingError("an array of objects")
        dtype = np.dtype(kind.order + kind.code)
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise pickle.UnpicklingError(f"an array of shape {shape} in {len(raw)} bytes")
        return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _encoded(text: Any, coding: Any) -> bytes:
    if not isinstance(text, str) or _text(coding) != "latin1":
        raise pickle.UnpicklingError("text in an unknown coding")
    return text.encode("latin1")


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Functions are made anew for each pickle: one that puts a state into them alters nothing.
        if module in _ARRAYS and name == "_reconstruct":
            return lambda *_: _Array()  # makes the empty array that a state is put into
        if (module, name) == ("numpy", "ndarray"):
            return _Array
        if (module, name) == ("numpy", "dtype"):
            return _Type
        if (module, name) == ("_codecs", "encode"):
            return lambda text, coding=b"": _encoded(text, coding)  # how Python 3 writes bytes into old protocols
        raise pickle.UnpicklingError(f"a call of {module}.{name}")


def unpickle(content: bytes, name: str) -> Any:
    """Return what ``content`` holds: dict, list, tuple, int, float, bytes, str, None and numpy arrays.

    It is a pickle of any protocol, written by Python 2 or 3; errors call it ``name``.

    Raises:
        DamagedFileError: It holds anything else, or is not a whole pickle. Nothing in it has been run.
    """
    try:
        return _plain(_Reader(io.BytesIO(content), encoding="bytes").load())
    except Exception as error:
        raise DamagedFileError(
            f"{name} is refused: expected a pickle of plain arrays, found {error}. Nothing in it was run; get the file "
            "from the official place."
        ) from error


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > 16:
        raise pickle.UnpicklingError("values nested too deeply")
    if isinstance(value, _Array):
        return value.array()
    if isinstance(value, dict):
        return {_plain(key, depth + 1): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item, depth + 1) for item in value)
    if value is None or isinstance(value, bool | int | float | bytes | str):
        return value
    raise pickle.UnpicklingError(f"a {type(value).__name__}")


def read_pickle(path: Path) -> Any:
    """Read a file by :func:`unpickle`."""
    try:
        if path.stat().st_size > _LIMIT:
            raise DamagedFileError(f"{path} is refused: larger than {_LIMIT:,} bytes, which no official file is.")
        return unpickle(path.read_bytes(), str(path))
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read ({error}). Fetch the data set again.") from error
