"""Everything that is chosen by name has one kind of registry: models, data sets, methods, attacks, marks, suspects.

Classes from outside the package can be added to those of methods, marks and suspects: by an entry point of the
registry's group, or as ``package.module:Class``, which is then also its name in records. docs/contributing.md says how.
Nothing is searched or imported before a name is asked for that the package does not have, or all names are asked for.
What a file says never imports anything: ``in`` is false for ``package.module:Class``.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Generic, TypeVar

from indelible.base.errors import IndelibleError, InputError, UnknownNameError
from indelible.base.imports import import_named

_OUTSIDE = "package.module:Class"
T = TypeVar("T", bound=Any)
Kind = TypeVar("Kind", bound=type[Any])


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """Description of a method, for choosing one.

    ``cost`` is the training cost relative to plain training, as a phrase for a table; ``build`` is the class whose
    instances are the method as a value (keyword-only settings, the paper's defaults).
    """

    name: str
    title: str = ""
    paper: str = ""
    summary: str = ""
    cost: str = ""
    build: type[Any]


class Registry(Generic[T]):
    """Named records of one kind (``what``: "model", "removal attack"); unknown names list the choices."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, T] = {}

    def add(self, entry: T) -> T:
        """Register ``entry`` under ``entry.name`` and return it."""
        if entry.name in self._entries:
            raise InputError(f"the {self.what} {entry.name!r} is registered already. Choose another name.")
        self._entries[entry.name] = entry
        return entry

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise UnknownNameError(self.what, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self.entries())

    def entries(self) -> list[T]:
        """Return all records in the order of registration."""
        return [self._entries[name] for name in self]


class MethodRegistry(Registry[MethodInfo]):
    """A registry of methods that other packages can add to, by entry points of the ``group``.

    ``base`` is the class that every method derives from, as ``package.module:Class``, imported when it is needed;
    ``needs`` is what each must have beyond it, as it is written: its name and arguments.
    """

    def __init__(self, what: str, *, group: str, base: str, needs: str = "run(self, job)") -> None:
        super().__init__(what)
        self.group, self.base, self.needs = group, base, needs

    def register(self, *, name: str, **about: str) -> Callable[[Kind], Kind]:
        """Return a decorator that registers a class with what :class:`MethodInfo` says of it."""

        def add(kind: Kind) -> Kind:
            self.add(MethodInfo(name=name, build=kind, **about))
            return kind

        return add

    def __getitem__(self, name: str) -> MethodInfo:
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            return self._named(name)
        found = entry_points(group=self.group)
        if name not in found.names:
            raise UnknownNameError(self.what, name, [*self._entries, *found.names])
        return self._loaded(found.select(name=name))

    def __contains__(self, name: object) -> bool:
        try:
            return name in self._entries or (isinstance(name, str) and ":" not in name and bool(self[name]))
        except InputError:
            return False

    def __iter__(self) -> Iterator[str]:
        """Yield all names: those of this package in the order of registration, then those of entry points, sorted."""
        self.load_installed()
        outside = entry_points(group=self.group).names  # loaded one by one as they are asked for, in any order
        return iter(sorted(super().__iter__(), key=lambda name: (name in outside, name if name in outside else "")))

    def load_installed(self) -> list[str]:
        """Load every entry point; return why some could not be, one sentence each.

        A package that is broken must not keep anybody from the methods of the others.
        """
        failed = []
        found = entry_points(group=self.group)
        for name in sorted(found.names):
            try:
                self._loaded(found.select(name=name))
            except InputError as error:
                failed.append(str(error))
        return failed

    def name_of(self, kind: type[Any]) -> str:
        """Return the name of a method's class: the registered one, or ``package.module:Class``."""
        # Others' packages are loaded only when ours do not have it.
        known = self._registered(kind) or next((info for info in self.entries() if info.build is kind), None)
        if known is not None:
            return known.name
        if not self._fits(kind):
            raise UnknownNameError(self.what, kind.__name__, self)
        return f"{kind.__module__}:{kind.__qualname__}"

    def _registered(self, kind: Any) -> MethodInfo | None:
        """Return the record of a class, if it is registered already."""
        return next((info for info in self._entries.values() if info.build is kind), None)

    def _loaded(self, points: EntryPoints) -> MethodInfo:
        """Load an entry point and register its method, once; whatever goes wrong names the entry point."""
        point = next(iter(points))
        origin = ", ".join(f"{one.value} of {one.dist.name if one.dist else 'an unknown package'}" for one in points)
        where = f"the entry point {point.name!r} of the group {self.group!r} ({origin})"
        if len(points) > 1:
            raise InputError(f"{where} is there more than once. Uninstall all but one of these packages.")
        try:
            info = self._info(point.name, point.load())
            taken = self._entries.get(point.name)
            if taken is not None and taken.build is not info.build:
                raise InputError(f"the name belongs to {taken.title!r} already. Choose another one.")
            return taken or self.add(info)
        except IndelibleError as error:
            raise InputError(f"{where} cannot be used: {error}") from error
        except Exception as error:
            raise InputError(
                f"{where} cannot be loaded: {type(error).__name__}: {error}. Fix or uninstall its package."
            ) from error

    def _info(self, name: str, value: Any) -> MethodInfo:
        """Make a record of what an entry point of this name gave."""
        if callable(value) and not isinstance(value, type):
            made = None if name in self._entries else value()
            if made is None and name not in self._entries:
                raise InputError(f"{value.__name__}() registered no {self.what} of this name.")
            value = self._entries.get(name, made)
        if not isinstance(value, type | MethodInfo):
            raise InputError(
                f"expected a class, a MethodInfo or a function that registers one, got {type(value).__name__}."
            )
        info = self._described(name, value)
        if info.name != name:
            raise InputError(f"its MethodInfo has the name {info.name!r}. Give both the same name.")
        return info

    def _named(self, name: str) -> MethodInfo:
        """Import ``package.module:Class``; a name of this form builds the method again wherever it is read."""
        try:
            found = import_named(name, expected=_OUTSIDE)
        except IndelibleError:
            raise
        except Exception as error:
            raise InputError(
                f"cannot import {name!r}: {type(error).__name__}: {error}. Fix the module, or install what it needs."
            ) from error
        # The module may have registered it under a name of its own.
        return replace(self._registered(found) or self._described(name, found), name=name)

    def _described(self, name: str, found: Any) -> MethodInfo:
        """Return a record of what was found, a class or a record; refuse what is not a usable method."""
        kind = found.build if isinstance(found, MethodInfo) else found
        base = import_named(self.base, expected=_OUTSIDE)
        if not self._fits(kind):
            got = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
            raise InputError(f"a {self.what} is a class that derives from {self.base.replace(':', '.')}, got {got}.")
        own, given = (inspect.getattr_static(one, self.needs.partition("(")[0]) for one in (kind, base))
        if own is given:
            raise InputError(f"{kind.__name__} has no method {self.needs}. A {base.__name__} does its work there.")
        if inspect.get_annotations(kind) and "__dataclass_fields__" not in vars(kind):
            raise InputError(
                f"{kind.__name__} has settings but is not a dataclass. Decorate it: "
                "@dataclass(frozen=True, kw_only=True)."
            )
        if isinstance(found, MethodInfo):
            return found
        summary = (inspect.getdoc(kind) or "").partition("\n")[0] or "no description"
        return MethodInfo(
            name=name, title=kind.__name__, paper=kind.__module__, summary=summary, cost="unknown", build=kind
        )

    def _fits(self, kind: Any) -> bool:
        base = import_named(self.base, expected=_OUTSIDE)
        return isinstance(kind, type) and issubclass(kind, base) and kind is not base
