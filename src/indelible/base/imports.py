"""Import what a user names as ``package.module:name``: a network, an attack, an embedding method."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from indelible.base.errors import InputError

__all__ = ["import_named", "working_folder"]


def import_named(name: str, *, expected: str) -> Any:
    """Import the object that ``name`` means; the working folder is searched last.

    Args:
        name: ``package.module:name``, where ``name`` may be dotted.
        expected: How to write one, for the error: ``"package.module:function"``.

    Raises:
        InputError: No such module, or nothing of that name in it. An exception that the module itself raises on import
            is left as it is.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path or module_name.startswith("."):
        raise InputError(f"expected {expected!r}, got {name!r}.")
    try:
        with working_folder():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # something that the user's module imports: the traceback shows where
        raise InputError(
            f"cannot import {name!r}: there is no module {error.name!r}. "
            "Install it, put its folder on PYTHONPATH, or run from the folder that holds it."
        ) from error
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InputError(f"module {module_name!r} has no {path!r}. Check the name after the colon.") from error


@contextmanager
def working_folder() -> Iterator[None]:
    """Search the working folder for modules, last, so that it can shadow nothing: an installed command does not."""
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.reverse()
        sys.path.remove(folder)
        sys.path.reverse()
