"""A method is a value: keyword-only settings with the paper's defaults, and a ``repr`` that rebuilds it.

Model and data come when it is called.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from indelible.base.checks import check_finite_settings, check_ranges, check_settings, check_words
from indelible.base.errors import UnknownNameError
from indelible.base.records import JsonFields
from indelible.base.registry import MethodRegistry


@dataclass(frozen=True, kw_only=True)
class Method(JsonFields):
    """Base of embedding methods and removal attacks."""

    cpu_settings: ClassVar[Mapping[str, Any]] = {}
    """What the scale ``cpu`` changes in this method's own settings."""
    ranges: ClassVar[Mapping[str, str]] = {}
    """Intervals that settings must lie in: ``{"share": "(0, 1]", "steps": "[1, inf)"}``."""

    def __post_init__(self) -> None:
        check_words(self)
        check_finite_settings(self)
        check_ranges(self, self.ranges)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a mapping; unknown settings and wrong types are refused."""
        check_settings(cls, settings, f"setting of {cls.__name__}")
        return cls(**settings)

    def why_one_process(self) -> str:
        """Return why one process must do all of the work; nothing where several can share it."""
        return ""


def resolve(registry: MethodRegistry, method: "str | Method", settings: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a method's name and value, from a name with settings or from a value as it is."""
    if isinstance(method, str):
        info = registry[method]
        return info.name, info.build.of(settings)
    if settings:
        raise UnknownNameError("argument", min(settings), ["settings of the method belong into the method value"])
    return registry.name_of(type(method)), method
