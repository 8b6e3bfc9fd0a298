"""Named data sets: load them when they are there, fetch them when they are not.

Fetched sets live in ``$INDELIBLE_DATA``, or ``~/.cache/indelible`` when that is not set, one folder each. Options may
follow a name, so that one piece of text - in a run, a preset, a command - says all of it:

| option | what |
|---|---|
| ``train``, ``test`` | so many images of each split, chosen by a fixed seed: ``cifar10?train=5000&test=1000`` |
| ``size`` | of an image folder: height and width of the pictures |
| ``classes`` | of an image folder: path of a list of its classes |
| ``per_class`` | of an image folder: training and test images of each class: ``imagenet?size=224&per_class=500,50`` |
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch

from indelible.base.errors import InputError, UnknownNameError
from indelible.base.progress import Progress
from indelible.base.seeding import generator
from indelible.data.convert import path_parts
from indelible.data.download import UnreachableError
from indelible.data.images import Data
from indelible.data.install import MANIFEST, install, installed_from, read_installed
from indelible.data.sources import SOURCES
from indelible.data.sources.source import Pair, Source, data_root

__all__ = ["data_root", "fetch", "load", "split_options"]

_TEST_SHARE = 0.1
_OPTIONS = ("train", "test", "size", "classes", "per_class")


def load(
    name: str | Path,
    root: str | Path | None = None,
    *,
    size: int | None = None,
    classes: Sequence[str] | str | Path | None = None,
    per_class: tuple[int | None, int | None] = (None, None),
    workers: int = 0,
) -> tuple[Data, Data]:
    """Return ``(train, test)`` of a data set.

    Args:
        name: A name that ``indelible data list`` shows, or the path of an image folder or of an ``.npz`` file. When a
            path holds only one split, a tenth of it is kept apart as test images, chosen by a fixed seed. Options may
            follow behind a question mark: ``cifar10?train=5000&test=1000``.
        root: Where fetched sets live; see :func:`data_root`.
        size: Height and width that pictures of a folder are brought to (shorter side scaled, centre cropped); without
            it all pictures must have one size.
        classes: Of a folder: the classes to use, or the path of a list of them.
        per_class: Of a folder: at most so many training and test images of each class. The paper's ImageNet subset is
            ``load(folder, size=224, classes="classes.txt", per_class=(500, 50))``.
        workers: Processes that decode a folder that does not fit into memory.

    Raises:
        InputError: There is no such set, or it has not been fetched; the message says which command to run.
        DamagedFileError: Its files have been altered.
    """
    bare, options = split_options(str(name))
    wanted = options.pop("train", None), options.pop("test", None)
    path = Path(bare).expanduser()
    if bare in SOURCES:
        pair: tuple[Data, Data] = _load_named(SOURCES[bare], root)
    elif path.exists() or path.suffix == ".npz" or len(path.parts) > 1:
        given = {"size": size, "classes": classes, "per_class": per_class, "workers": workers}
        pair = _load_path(path, **(given | options))
    else:
        raise UnknownNameError("data set", bare, SOURCES)
    return _some(pair[0], wanted[0], "train"), _some(pair[1], wanted[1], "test")


def fetch(name: str, root: str | Path | None = None, place: str | Path | None = None) -> Path:
    """Bring the data set ``name`` to ``root`` and return its folder; nothing is done when it is there, whole.

    ``place`` is one of the set's places, or the path of files that are here already. By default the places are tried
    in order until one can be reached.
    """
    source = SOURCES[name]
    if source.embedded is not None:
        return source.embedded
    folder, downloads = data_root(root) / name, data_root(root) / "downloads" / name
    found = installed_from(source, folder)
    known = next((one for one in source.places if one.name == str(place)), None)
    if place is None and found is None:
        _first_reachable(source, folder, downloads)
    elif place is not None and (known is None or found != known.name):
        install(source, folder, known or Path(place).expanduser(), downloads)
    return folder


def _first_reachable(source: Source, folder: Path, downloads: Path) -> None:
    said = []
    for place in source.places:
        try:
            return install(source, folder, place, downloads)
        except UnreachableError as error:
            said.append(f"{place.name}: {error}")
            Progress(source.name, 0).line(f"{place.title}: not reachable, trying the next place")
    raise InputError(f"no place of {source.name} could be reached. {' '.join(said)}")


def _load_named(source: Source, root: str | Path | None) -> Pair:
    if source.embedded is not None:
        return source.read(source.embedded)
    folder = data_root(root) / source.name
    if not (folder / MANIFEST).is_file():
        option = f" --root {shlex.quote(str(root))}" if root else ""
        raise InputError(
            f"the data set {source.name!r} is not in {folder}. Run: indelible data fetch {source.name}{option}"
        )
    return read_installed(source, folder)


def _load_path(path: Path, **options: Any) -> tuple[Data, Data]:
    first, *more = path_parts(path, **options)
    whole = first()
    if more:
        return whole, more[0]()
    order = torch.randperm(len(whole), generator=generator(0, "test share"))
    kept = max(1, round(_TEST_SHARE * len(whole)))
    if len(whole) - kept < 1:
        raise InputError(f"{path} holds {len(whole)} image, too few to keep a test share. Give at least two images.")
    Progress(path.name, 0).line(f"{path} has one split only: {kept} of {len(whole)} images are kept apart for testing")
    return whole.subset(order[kept:].sort().values), whole.subset(order[:kept].sort().values)


def split_options(name: str) -> tuple[str, dict[str, Any]]:
    """Split ``name?option=value&...`` into the bare name and its options; see the table in the module's header."""
    bare, _, text = name.partition("?")
    options: dict[str, Any] = dict(parse_qsl(text, keep_blank_values=True))
    for option in options:
        if option not in _OPTIONS:
            raise UnknownNameError("option of a data set", option, _OPTIONS)
    try:
        options |= {option: int(options[option]) for option in ("train", "test", "size") if option in options}
        if "per_class" in options:
            first, second = options["per_class"].split(",")
            options["per_class"] = int(first), int(second)
    except ValueError as error:
        raise InputError(
            f"options of a data set are whole numbers, such as cifar10?train=5000&test=1000 or per_class=500,50, got "
            f"{name!r}."
        ) from error
    if any(isinstance(value, int) and value < 1 for value in options.values()):
        raise InputError(f"numbers in {name!r} must be at least 1.")
    return bare, options


def _some(data: Data, count: int | None, split: str) -> Data:
    if count is None:
        return data
    if count > len(data):
        raise InputError(f"{data.name!r} has {len(data)} {split} images, got {split}={count}. Give a smaller number.")
    order = torch.randperm(len(data), generator=generator(0, f"{split} images"))
    return data.subset(order[:count].sort().values)
