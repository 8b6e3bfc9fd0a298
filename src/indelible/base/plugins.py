"""Methods from outside the package: by an entry point of an installed package, or as ``package.module:Class``.

| written | found by | its name in records |
|---|---|---|
| ``ft`` | registered by this package | ``ft`` |
| ``shake`` | entry point ``shake`` of the registry's group | ``shake`` |
| ``mypackage.attacks:Shake`` | import, the working folder included | ``mypackage.attacks:Shake`` |

An entry point is a class, a :class:`MethodInfo` of the entry point's name, or a function without arguments that
registers or returns one. Nothing is searched or imported before a name is asked for that the package does not have, or
all names are asked for. What a file says never imports anything: ``in`` is false for ``package.module:Class``.
"""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indelible.base.errors import IndelibleError, InputError, UnknownNameError
from indelible.base.imports import import_named
from indelible.base.registry import MethodInfo, Registry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["MethodRegistry"]

_OUTSIDE = "package.module:Class"


class MethodRegistry(Registry[MethodInfo]):
    """A registry of methods that other packages can add to.

    Args:
        what: What is registered, as it should read in an error.
        group: Group of the entry points.
        base: The class that every method derives from, as ``package.module:Class``; imported when it is needed.
    """

    def __init__(self, what: str, *, group: str, base: str) -> None:
        super().__init__(what)
        self.group, self.base = group, base
        self._installed: dict[str, MethodInfo] = {}

    def __getitem__(self, name: str) -> MethodInfo:
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            return self._named(name)
        found = self._points()
        if name not in found:
            raise UnknownNameError(self.what, name, [*self._entries, *found])
        return self._loaded(found[name])

    def __contains__(self, name: object) -> bool:
        if name in self._entries:
            return True
        if not isinstance(name, str) or ":" in name or name not in self._points():
            return False
        try:
            self[name]
        except InputError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        self.load_installed()
        return super().__iter__()

    def __len__(self) -> int:
        self.load_installed()
        return super().__len__()

    def entries(self) -> list[MethodInfo]:
        """Return all records: those of this package in the order of registration, then those of entry points."""
        self.load_installed()
        return super().entries()

    def load_installed(self) -> list[str]:
        """Load every entry point that is not loaded yet; return why some could not be, one sentence each.

        A package that is broken must not keep anybody from the methods of the others.
        """
        failed = []
        for _, points in sorted(self._points().items()):
            try:
                self._loaded(points)
            except InputError as error:
                failed.append(str(error))
        return failed

    def name_of(self, kind: type[Any]) -> str:
        """Return the name of a method's class: the registered one, or ``package.module:Class``."""
        for known in (self._entries.values, self.entries):  # others' packages are loaded only when ours do not have it
            for info in known():
                if info.build is kind:
                    return info.name
        if not self._fits(kind):
            raise UnknownNameError(self.what, kind.__name__, self)
        return f"{kind.__module__}:{kind.__qualname__}"

    def _points(self) -> "dict[str, list[EntryPoint]]":
        """Return the installed entry points by name."""
        from importlib.metadata import entry_points

        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            known = found.setdefault(point.name, [])
            if point.value not in {one.value for one in known}:  # a package may be on the path twice
                known.append(point)
        return found

    def _loaded(self, points: "list[EntryPoint]") -> MethodInfo:
        """Load an entry point and register its method, once; whatever goes wrong names the entry point."""
        point = points[0]
        known = self._entries.get(point.name)
        if known is not None and known is self._installed.get(point.name):
            return known
        where = f"the entry point {point.name!r} of the group {self.group!r} ({_origin(points)})"
        if len(points) > 1:
            raise InputError(f"{where} is there more than once. Uninstall all but one of these packages.")
        try:
            info = self._info(point.name, point.load())
            if info.name != point.name:
                raise InputError(f"its MethodInfo has the name {info.name!r}. Give both the same name.")
            taken = self._entries.get(info.name)
            if taken is not None and taken.build is not info.build:
                raise InputError(f"the name belongs to {taken.title!r} already. Choose another one.")
            self._installed[point.name] = taken or self.add(info)
        except IndelibleError as error:
            raise InputError(f"{where} cannot be used: {error}") from error
        except Exception as error:
            raise InputError(
                f"{where} cannot be loaded: {type(error).__name__}: {error}. Mend or uninstall its package."
            ) from error
        return self._installed[point.name]

    def _info(self, name: str, value: Any) -> MethodInfo:
        """Make a record of what an entry point of this name gave."""
        if isinstance(value, type):
            known = self._entries.get(name)
            return known if known is not None and known.build is value else self._described(name, value)
        if not isinstance(value, MethodInfo):
            if not callable(value):
                raise InputError(
                    f"expected a class, a MethodInfo or a function that registers one, got {type(value).__name__}."
                )
            made = value()
            if made is None:
                if name not in self._entries:
                    raise InputError(f"{value.__name__}() registered no {self.what} of this name.")
                return self._entries[name]
            value = made
        if not isinstance(value, MethodInfo):
            raise InputError(f"expected a MethodInfo, got {type(value).__name__}.")
        self._check(value.build)
        return value

    def _named(self, name: str) -> MethodInfo:
        """Import ``package.module:Class``; a name of this form builds the method again wherever it is read."""
        try:
            kind = import_named(name, expected=_OUTSIDE)
        except IndelibleError:
            raise
        except Exception as error:
            raise InputError(
                f"cannot import {name!r}: {type(error).__name__}: {error}. Mend the module, or install what it needs."
            ) from error
        if isinstance(kind, MethodInfo):
            self._check(kind.build)
            return replace(kind, name=name)
        for info in super().entries():
            if info.build is kind:  # the module registered it under a name of its own
                return replace(info, name=name)
        return self._described(name, kind)

    def _described(self, name: str, kind: Any) -> MethodInfo:
        """Make a record of a class that comes without one."""
        self._check(kind)
        summary = (inspect.getdoc(kind) or "").partition("\n")[0]
        return MethodInfo(
            name=name, title=kind.__name__, paper=kind.__module__, summary=summary or "no description",
            cost="unknown", build=kind,
        )  # fmt: skip

    def _fits(self, kind: Any) -> bool:
        base = import_named(self.base, expected=_OUTSIDE)
        return isinstance(kind, type) and issubclass(kind, base) and kind is not base

    def _check(self, kind: Any) -> None:
        """Refuse what is not a usable method."""
        base = self.base.partition(":")[2]
        if not self._fits(kind):
            got = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
            raise InputError(f"a {self.what} is a class that derives from {self.base.replace(':', '.')}, got {got}.")
        if kind.run is import_named(self.base, expected=_OUTSIDE).run:
            raise InputError(f"{kind.__name__} has no method run(self, job). A {base} does its work there.")
        if inspect.get_annotations(kind) and "__dataclass_fields__" not in vars(kind):
            raise InputError(
                f"{kind.__name__} has settings but is not a dataclass. Decorate it: "
                "@dataclass(frozen=True, kw_only=True)."
            )


def _origin(points: "list[EntryPoint]") -> str:
    """Say which packages entry points come from, and what they name."""
    return ", ".join(f"{point.value} of {point.dist.name if point.dist else 'an unknown package'}" for point in points)
