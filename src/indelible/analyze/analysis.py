"""An analysis on disk: one folder that holds the numbers behind a figure, and whatever is drawn from them.

| file | what |
|---|---|
| ``analysis.json`` | every number, the settings, the versions; written last |
| ``figure.png``, ``figure.svg`` | drawn from ``analysis.json`` alone, if matplotlib is installed |
| ``points.json`` | what a long analysis has measured so far; it goes on from there |

A result is a frozen dataclass of numbers, texts, tuples and other such dataclasses, so that reading it back needs no
code of its own: :func:`rebuild` follows the type hints.
"""

import hashlib
import types
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from indelible.base.errors import DamagedFileError, InputError, UnknownNameError
from indelible.base.files import canonical_json, read_json, write_json
from indelible.base.records import plain, versions
from indelible.base.registry import MethodRegistry

if TYPE_CHECKING:
    from jinja2 import Environment

ANALYSIS = "analysis.json"
ANALYSES = MethodRegistry(
    "figure", group="indelible.analyses", base="indelible.analyze.analysis:Analysis",
    needs="of_models(cls, models, settings, folder)",
)  # fmt: skip
"""Every kind of analysis by name; a subclass of :class:`Analysis` adds itself, if it is not told otherwise."""
_POINTS = "points.json"
_FORMAT = 1


@cache
def _texts(package: str) -> "Environment":
    """Return the environment of a package's ``templates``, which put numbers into words."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(  # noqa: S701 - plain text: whoever shows it on a page escapes it
        loader=PackageLoader(package), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["number"] = lambda value, digits="g": format(value, digits)
    made.filters["percent"] = lambda rate, digits=".1f": format(100 * rate, digits)
    made.filters["repr"] = repr
    made.globals["joint"] = joint
    return made


def joint(loop: Any) -> str:
    """Return what a template writes between the words of a list: commas, and a final "and"."""
    return "" if loop.first else " and " if loop.last else ", "


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Base of results: the numbers behind one figure, which has the name of the command that makes it.

    Another package adds one by an entry point of the group ``indelible.analyses``, a template of its sentences in
    ``templates`` beside its module, and a drawing in :data:`indelible.report.figures.FIGURES`.
    """

    figure: ClassVar[str]

    def __init_subclass__(cls, *, registered: bool = True) -> None:
        if registered:
            ANALYSES.register(name=cls.figure)(cls)

    @classmethod
    def of_models(cls, models: Sequence[Any], settings: Mapping[str, Any], folder: Path) -> "Analysis":
        """Analyse marked models with settings as typed; what takes long keeps its measurements in ``folder``."""
        raise NotImplementedError

    def sentences(self) -> list[str]:
        """Return what the numbers say, one sentence each, in the words of ``templates``."""
        return self._written().sentences().strip().split("\n")  # type: ignore[no-any-return]

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        return self._written().alt().strip()  # type: ignore[no-any-return]

    def _written(self) -> Any:
        package = type(self).__module__.rpartition(".")[0]
        return _texts(package).get_template(f"{self.figure}.txt.j2").make_module({"it": self})

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        numbers = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        return {"format": _FORMAT, "figure": self.figure, "versions": plain(versions()), **numbers}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Rebuild a result from :meth:`to_json`; refuse other values and other formats."""
        if not isinstance(value, Mapping) or value.get("format") != _FORMAT or value.get("figure") != cls.figure:
            raise DamagedFileError(f"expected an analysis {cls.figure!r} of format {_FORMAT}. Make it again.")
        try:
            found: Self = rebuild(cls, value)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(f"the analysis {cls.figure!r} is damaged ({error!r}). Make it again.") from error
        return found


def rebuild(hint: Any, value: Any) -> Any:
    """Turn JSON values back into what ``hint`` says: dataclasses, tuples, mappings, numbers, texts, or None."""
    origin = get_origin(hint)
    found: Any
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        found = hint(**{field.name: rebuild(hints[field.name], value[field.name]) for field in fields(hint)})
    elif origin in {Union, types.UnionType}:
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        found = None if value is None else rebuild(kinds[0], value)
    elif origin is tuple:
        kinds = list(get_args(hint))
        each = [kinds[0]] * len(value) if kinds[-1] is Ellipsis else kinds
        found = tuple(rebuild(kind, item) for kind, item in zip(each, value, strict=True))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        found = {str(key): rebuild(get_args(hint)[1], item) for key, item in value.items()}
    elif hint is float:
        found = float(value)
    else:
        found = value
    return found


def read_analysis(folder: str | Path) -> Analysis:
    """Read the analysis in ``folder``."""
    path = Path(folder) / ANALYSIS
    if not path.is_file():
        raise InputError(
            f"{folder} holds no finished analysis. Make one: indelible analyze landscape RUN --out {folder}"
        )
    found = read_json(path)
    name = str(found.get("figure")) if isinstance(found, Mapping) else ""
    if name not in ANALYSES:
        raise DamagedFileError(f"{path} cannot be read: {UnknownNameError(ANALYSES.what, name, ANALYSES)}")
    made: Analysis = ANALYSES[name].build.from_json(found)
    return made


def write_analysis(folder: str | Path, analysis: Analysis) -> Path:
    """Write ``analysis.json``; return the folder."""
    write_json(Path(folder) / ANALYSIS, analysis.to_json())
    return Path(folder)


class PointLog(UserDict[str, Mapping[str, Any]]):
    """Measured rows by key, in memory and - with a folder - in ``points.json``, so that a long analysis can continue.

    The file names what the measurements belong to (``identity``, whatever decides them); one of other settings, another
    model or other data is refused.
    """

    def __init__(self, folder: str | Path | None, identity: Mapping[str, Any]) -> None:
        self._path = None if folder is None else Path(folder) / _POINTS
        self._identity = hashlib.sha256(canonical_json(plain(identity))).hexdigest()
        super().__init__()
        if self._path is not None and self._path.exists():
            found = read_json(self._path)
            if found["belongs_to"] != self._identity:
                raise InputError(
                    f"{self._path} holds measurements of another model, other data or other settings. Choose another "
                    "folder with --out, or delete it."
                )
            self.data = found["rows"]

    def __setitem__(self, key: str, value: Mapping[str, Any]) -> None:
        """Keep one measurement; measured again, it replaces the earlier one."""
        super().__setitem__(key, plain(value))
        if self._path is not None:
            write_json(self._path, {"belongs_to": self._identity, "rows": self.data})
