"""One kind of registry for everything that is chosen by name: models, data sets, methods, attacks, mark kinds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from indelible.base.errors import InputError, UnknownNameError

__all__ = ["MethodInfo", "Registry"]


@dataclass(frozen=True, kw_only=True)
class MethodInfo:
    """What a person should know of a method before choosing it.

    Attributes:
        name: The name on the command line.
        title: The full name.
        paper: Where it was published.
        summary: One sentence on what it does.
        cost: Training cost relative to plain training, as a phrase for a table.
        build: The class whose instances are the method as a value (keyword-only settings, the paper's defaults).
    """

    name: str
    title: str
    paper: str
    summary: str
    cost: str
    build: type[Any]


T = TypeVar("T", bound=Any)


class Registry(Generic[T]):
    """Named records of one kind; unknown names list the choices, duplicates are refused.

    Args:
        what: What is registered, as it should read in an error ("model", "removal attack").
    """

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
        return len(self._entries)

    def entries(self) -> list[T]:
        """Return all records in the order of registration."""
        return list(self._entries.values())
