"""A method is a value: keyword-only settings with the paper's defaults, and a ``repr`` that rebuilds it.

Model and data come when it is called.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from indelible.base.checks import check_finite_settings, check_settings
from indelible.base.errors import UnknownNameError
from indelible.base.plugins import MethodRegistry
from indelible.base.records import plain

__all__ = ["Method", "resolve", "without_added"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """Base of embedding methods and removal attacks."""

    added: ClassVar[Mapping[str, Any]] = {}
    """Settings that a later version brought, at the values that mean what was done before. At these they are left out
    of digests, so that finished work stays finished."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """Build from a mapping; unknown settings and wrong types are refused."""
        check_settings(cls, settings, f"setting of {cls.__name__}")
        return cls(**settings)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return {name: plain(value) for name, value in asdict(self).items()}

    def spelled(self) -> str:
        """Return the ``repr`` without settings that :attr:`added` names and that stand at its values."""
        known = {field.name: getattr(self, field.name) for field in fields(self) if field.repr}
        words = (f"{name}={value!r}" for name, value in without_added(type(self), known).items())
        return f"{type(self).__qualname__}({', '.join(words)})"


def without_added(method: type[Method], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a method without those that are what they were before there was a setting."""
    return {name: value for name, value in settings.items() if name not in method.added or value != method.added[name]}


def resolve(registry: MethodRegistry, method: "str | Method", settings: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a method's name and value, from a name with settings or from a value as it is."""
    if isinstance(method, str):
        info = registry[method]
        return info.name, info.build.of(settings)
    if settings:
        raise UnknownNameError("argument", min(settings), ["settings of the method belong into the method value"])
    name = registry.name_of(type(method))
    check_finite_settings(method)
    return name, method
