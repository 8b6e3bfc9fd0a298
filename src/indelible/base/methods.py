"""A method is a value: keyword-only settings with the paper's defaults, and a ``repr`` that rebuilds it.

Model and data come when it is called.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from indelible.base.checks import check_settings
from indelible.base.errors import UnknownNameError
from indelible.base.records import plain
from indelible.base.registry import MethodInfo, Registry

__all__ = ["Method", "resolve"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """Base of embedding methods and removal attacks."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a mapping; unknown settings and wrong types are refused."""
        check_settings(cls, settings, f"setting of {cls.__name__}")
        return cls(**settings)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {name: plain(value) for name, value in asdict(self).items()}


def resolve(registry: Registry[MethodInfo], method: "str | Method", settings: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a method's name and value, from a name with settings or from a value as it is."""
    if isinstance(method, str):
        info = registry[method]
        return info.name, info.build.of(settings)
    if settings:
        raise UnknownNameError("argument", min(settings), ["settings of the method belong into the method value"])
    for info in registry.entries():
        if type(method) is info.build:
            return info.name, method
    raise UnknownNameError(registry.what, type(method).__name__, registry)
