"""Read pickles that hold nothing but arrays, numbers, strings, lists and dictionaries - without ever running them.

A pickle is a program: it may name any function and call it. This reader knows the four names that a numpy array is
stored with, and gives each a harmless stand-in; every other name is refused before anything is called. numpy itself
takes no part in unpickling, so an array's type and length are checked here and the numpy version does not matter.

Source of the layout: ``numpy.ndarray.__reduce__`` (state: version, shape, dtype, Fortran order, bytes) and that of
``numpy.dtype`` (state: version, byte order, ...). Pickles written by Python 2 (the official CIFAR files, protocol 2)
hold their strings as bytes; so do all results of this reader.
"""

import io
import math
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from indelible.base.errors import DamagedFileError
from indelible.data.sources.source import reading

_TYPES = frozenset({"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"})
_ORDERS = frozenset("<>|=")
_NUMPY = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
    }
)


class _StandIn:
    """Stands for an array or its type: remembers what it is made of."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments: tuple[Any, ...] = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NUMPY:
            return _StandIn
        if (module, name) == ("_codecs", "encode"):
            # How Python 3 writes bytes into old protocols. A new function for each pickle: a state that is put into it
            # alters nothing.
            return partial(_encoded)
        raise pickle.UnpicklingError(f"a call of {module}.{name}")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _encoded(text: Any, coding: Any) -> bytes:
    if not isinstance(text, str) or _text(coding) != "latin1":
        raise pickle.UnpicklingError("text in an unknown coding")
    return text.encode("latin1")


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
    if isinstance(value, _StandIn):
        return _array(value)
    if isinstance(value, dict):
        return {_plain(key, depth + 1): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item, depth + 1) for item in value)
    if value is None or isinstance(value, bool | int | float | bytes | str):
        return value
    raise pickle.UnpicklingError(f"a {type(value).__name__}")


def _array(stored: _StandIn) -> npt.NDArray[Any]:
    """Make the array that a stand-in describes; one that is not as numpy writes it raises something."""
    _, shape, kind, fortran, raw = stored.state
    code, order = _text(kind.arguments[0]), _text(kind.state[1])
    if code not in _TYPES or order not in _ORDERS or not isinstance(raw, bytes):
        raise pickle.UnpicklingError("an array of objects")
    dtype = np.dtype(order + code)
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise pickle.UnpicklingError(f"an array of shape {shape} in {len(raw)} bytes")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def read_pickle(path: Path) -> Any:
    """Read a file by :func:`unpickle`."""
    with reading(path):
        content = path.read_bytes()
    return unpickle(content, str(path))
