"""Optional packages: imported where they are used, with an error that says how to get them."""

import importlib
from typing import Any

from indelible.base.errors import InputError

__all__ = ["MissingExtraError", "needed"]


class MissingExtraError(InputError):
    """A package that only some uses need is not installed."""


def needed(module: str, *, extra: str, what: str) -> Any:
    """Import an optional package.

    Args:
        module: Its import name.
        extra: The extra of Indelible that installs it.
        what: What it is needed for, as the start of the error's sentence.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs the package {module.partition('.')[0]}, which is not installed ({error}). "
            f"Install it with: pip install 'indelible[{extra}]'"
        ) from error
