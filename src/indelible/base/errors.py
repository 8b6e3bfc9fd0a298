"""The errors a user can meet. Each message says what was expected, what it got, and what to do.

The command line turns every :class:`IndelibleError` into one line and exit code 2.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

COMPANIONS: Mapping[str, Collection[str]] = {
    "embedding method": ("cae", "ntl", "pgd-at", "rose", "trades"),
    "figure": ("dynamics", "tsne"),
    "scheme of a suspect": ("http", "https"),
}
"""Names that the package ``indelible-companions`` adds, by what errors call them."""


class IndelibleError(Exception):
    """Anything that Indelible refuses or cannot do, with a message for a person."""


class InputError(IndelibleError, ValueError):
    """An argument, a data set, a model or a key that cannot be used as given."""


class DivergedError(InputError):
    """Training whose loss became NaN or infinite: the cause, and the remedy.

    Two arguments, so that a caller with settings of its own can replace the remedy.
    """

    def __str__(self) -> str:
        return " ".join(str(part) for part in self.args)


class DamagedFileError(IndelibleError):
    """A file that is truncated, altered or of another format; it is never half-used."""


class StorageError(IndelibleError):
    """Writing failed (full disk, no permission). What was on disk before is still there, whole."""


class UnknownNameError(InputError):
    """A name that is not in a registry; the message lists what is."""

    def __init__(self, what: str, name: str, choices: Iterable[str]) -> None:
        known = sorted(choices)
        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        said = f"unknown {what} {name!r}: choose one of {', '.join(known)}.{hint}"
        if name in COMPANIONS.get(what, ()):
            said = f"the {what} {name!r} is in a package of its own. Run: pip install indelible-companions"
        super().__init__(said)

    def __reduce__(self) -> tuple[type[InputError], tuple[object, ...]]:
        """Travel to another process as the error with the finished message."""
        return InputError, self.args
