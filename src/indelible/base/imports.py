"""Import optional packages, and what a user names as ``package.module:name``: a network, an attack, a method."""

import importlib
import sys
from functools import reduce
from pathlib import Path
from typing import Any

from indelible.base.errors import InputError


class MissingExtraError(InputError):
    """A package that only some uses need is not installed."""


def needed(module: str, *, extra: str = "", what: str) -> Any:
    """Import an optional package, of an extra of Indelible if one is named; ``what`` needs it, for the error."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        install = f"'indelible[{extra}]'" if extra else package.replace("_", "-")
        raise MissingExtraError(
            f"{what} needs the package {package}, which is not installed ({error}). Install it with: pip install "
            f"{install}"
        ) from error


def import_named(name: str, *, expected: str) -> Any:
    """Import the object that ``name`` means (``expected`` says how to write one); the working folder is searched last.

    An exception that the module itself raises on import is left as it is.
    """
    module_name, _, path = name.partition(":")
    if not module_name or not path or module_name.startswith("."):
        raise InputError(f"expected {expected!r}, got {name!r}.")
    folder = str(Path.cwd())
    sys.path.append(folder)  # last, so that it can shadow nothing: an installed command does not search it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # something that the user's module imports: the traceback shows where
        raise InputError(
            f"cannot import {name!r}: there is no module {error.name!r}. "
            "Install it, put its folder on PYTHONPATH, or run from the folder that holds it."
        ) from error
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InputError(f"module {module_name!r} has no {path!r}. Check the name after the colon.") from error
