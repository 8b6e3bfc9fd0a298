"""What several commands do with their options: read settings, print a result, make a key, open a suspect."""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import indelible
from indelible.base.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from indelible.data.images import Data, Shape
    from indelible.verification import Suspect


def assignments(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON where they can be, text otherwise."""
    read: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"expected a setting as name=value, got {pair!r}. Example: --set eps=0.02")
        try:
            read[name] = json.loads(text)
        except json.JSONDecodeError:
            read[name] = text
    return read


def check_folders(arguments: argparse.Namespace) -> None:
    """Refuse a run or key that is not there, before what reads them is imported; other mistakes are told first."""
    run = getattr(arguments, "run_folder", None) or getattr(arguments, "victim", None)
    other = getattr(arguments, "runs", None) or getattr(arguments, "certificate", False)
    if run is not None and not other and not run.is_dir():
        raise InputError(f"there is no run {run}. Make one with `indelible embed --out {run}`.")
    if arguments.command == "key" and arguments.action != "create" and not (arguments.folder / "key.json").is_file():
        raise InputError(f"{arguments.folder} is not a key: it has no key.json. Make one with `indelible key create`.")


def emit(arguments: argparse.Namespace, document: Any, text: str, *tables: Any, ok: bool = True) -> int:
    """Print the result, JSON for machines or tables and text for people; return the exit code, 0 if all is ``ok``."""
    if tables and not arguments.json:
        from rich.console import Console

        Console().print(*tables, sep="\n")
    print(json.dumps(document, indent=2, allow_nan=False) if arguments.json else text)
    return 0 if ok else 1


def make_key(
    arguments: argparse.Namespace, classes: int, shape: "Shape", carriers: "Data | None" = None,
    secret: bytes | None = None,
) -> "indelible.Key":  # fmt: skip
    """Make the key that the options describe, with the classes of a codebook bound to ``carriers``."""
    source = None if arguments.source is None else indelible.load(arguments.source)[0]
    book = arguments.labels in {None, "codebook"} and arguments.target is None and arguments.scheme == "derived"
    bind = book and arguments.kind not in {"unrelated", "plain"}
    same = ("kind", "target", "labels", "marks", "count", "scheme", "size", "transparency", "strength", "source_class")
    return indelible.Key.create(
        classes=classes, shape=shape, carriers=carriers if bind else None, source=source, secret=secret,
        **{name: getattr(arguments, name) for name in same},
    )  # fmt: skip


def asked_suspect(
    arguments: argparse.Namespace, classes: int, shape: "Shape", run: "indelible.Run | None"
) -> "Suspect":  # fmt: skip
    """Open the suspect that the options name, for a key of ``classes`` and ``shape``."""
    from indelible.verification.suspects import Persistence, open_suspect

    normalize = None
    model: Callable[[], nn.Module] | None = None
    if arguments.model is not None:
        model = partial(indelible.build_model, arguments.model, classes=classes, shape=shape)
    elif run is not None:
        model, normalize = run.architecture.build, run.normalize()
    return open_suspect(
        arguments.suspect, classes=classes, input=assignments(arguments.input), model=model, normalize=normalize,
        input_name=arguments.input_name, output=arguments.output, shape=shape, batch=arguments.batch,
        headers=_headers(arguments.header),
        persistence=Persistence(timeout=arguments.timeout, tries=arguments.tries, rate=arguments.rate),
    )  # fmt: skip


def _headers(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, variable = pair.partition("=")
        value = os.environ.get(variable)
        if not name or not equals or value is None:
            raise InputError(
                f"a header is written NAME=VARIABLE with an environment variable that is set, got {pair!r}. "
                "A secret on the command line would be seen by others."
            )
        found[name] = value
    return found
