"""A method is a value: keyword-only settings with the paper's defaults, and a ``repr`` that rebuilds it.

Model and data come when it is called.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from indelible.base.checks import check_finite_settings, check_ranges, check_settings, check_words, setting_names
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.records import JsonFields
from indelible.base.registry import MethodRegistry

P = ParamSpec("P")
T = TypeVar("T")


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


def resolve(registry: MethodRegistry, method: str | T, build: Callable[[Any], T]) -> tuple[str, T]:
    """Return a method's name and value; ``build`` makes the value of a name, from its class."""
    if isinstance(method, str):
        return registry[method].name, build(registry[method].build)
    return registry.name_of(type(method)), method


def settings_in_value(registry: MethodRegistry, usual: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that refuses settings beside ``method`` (by default ``usual``), and shows where they go."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        expected = signature(function)
        names = expected.parameters.keys()

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            if kwargs.keys() <= names:
                return function(*args, **kwargs)
            method = kwargs.get("method") or expected.bind_partial(*args).arguments.get("method") or usual
            build = registry[method].build if isinstance(method, str) else type(method)
            maker = "for_key" if hasattr(build, "for_key") else "at_scale"
            known = {*setting_names(build), *signature(getattr(build, maker)).parameters} - {"none", "settings"}
            for name in kwargs.keys() - names - known:
                raise UnknownNameError("argument or setting", name, {*names, *known})
            given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items() if name not in names)
            raise InputError(
                f"settings go into a value, got {given}. Give method={build.__name__}.{maker}"
                f"({'key, ' if maker == 'for_key' else ''}{given}); the class is in {build.__module__}."
            )

        return checked

    return decorated
