"""Names that options accept, and descriptions of the methods, without importing torch.

The registries import torch, which takes seconds. Help, lists and the check of option values read ``known_names.json``,
which ``tools/write_known_names.py`` writes from the registries. Methods of other installed packages (entry points), and
those that a program registers before it calls the command line, are not in the file and are looked up separately. A
package that has a file of this name and form beside its ``__init__.py`` is not imported for that.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from indelible.base.checks import check_like
from indelible.base.errors import UnknownNameError
from indelible.cli.options import emit

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from indelible.base.registry import MethodRegistry

FILE = "known_names.json"
Methods = Literal["attacks", "embeddings"]
# Of each kind of method: what errors call it, the room and the name of its registry.
_REGISTRIES: Mapping[Methods, tuple[str, str, str]] = {
    "attacks": ("removal attack", "indelible.attacks", "ATTACKS"),
    "embeddings": ("embedding method", "indelible.embedding", "EMBEDDINGS"),
}


@cache
def _stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files("indelible.cli").joinpath(FILE).read_text(encoding="utf-8"))
    return found


def known_methods(which: Methods) -> dict[str, Mapping[str, Any]]:
    """Return the description of each method that is stored, by name, ours first; see :func:`describe_methods`."""
    known = {entry["name"]: entry for entry in _stored()[which]}
    for point in sorted(_installed(which)):
        found = _stored_by(point.module.partition(".")[0], which, point.name)
        known |= {} if point.name in known else found
    return known


def _stored_by(package: str, which: Methods, name: str) -> dict[str, Mapping[str, Any]]:
    """Return what the file of another package says of a method, by its name; nothing, if there is no such file."""
    try:
        spec = find_spec(package)
        place = next(iter((spec and spec.submodule_search_locations) or ()), None)
        entries = [] if place is None else json.loads(Path(place, FILE).read_text(encoding="utf-8"))[which]
        return {entry["name"]: entry for entry in entries if entry["name"] == name}
    except (OSError, ValueError, LookupError, TypeError):
        return {}  # whoever needs the description imports the method


def setting_names(which: Methods, method: str) -> list[str]:
    """Return the settings of a method; one of another package that stores none is imported for that."""
    known = known_methods(which).get(method)
    if known is not None:
        return list(known["defaults"])
    registry: MethodRegistry = getattr(import_module(_REGISTRIES[which][1]), _REGISTRIES[which][2])
    return [field.name for field in fields(registry[method].build)]


def check_values(which: Methods | Literal["training"], method: str, given: Mapping[str, Any]) -> None:
    """Refuse values that a setting of a method, or of the training, cannot have, as far as its description tells."""
    known = _stored()[which] if which == "training" else known_methods(which).get(method, {})
    check_like(given, known.get("defaults", {}), known.get("ranges", {}))


def known_names(what: str) -> list[str]:
    """Return the values of an option: ``"kind"``, ``"scale"``, ``"model"``, ..."""
    return list(_stored()["names"][what])


def installed_methods(which: str) -> list[str]:
    """Return the names of methods that other installed packages add, by their entry points; nothing is imported."""
    return sorted({point.name for point in _installed(which)})


def _installed(which: str) -> "EntryPoints":
    from importlib.metadata import entry_points

    return entry_points(group=f"indelible.{which}")


def loaded_registry(which: Methods) -> "MethodRegistry | None":
    """Return the registry if this process has imported it already, None otherwise; imports nothing."""
    _, room, name = _REGISTRIES[which]
    return getattr(sys.modules.get(room), name, None)


def model_name(text: str) -> str:
    """Check the value of ``--model``."""
    return text if ":" in text else one_of("model", known_names("model"), text)


def data_name(text: str) -> str:
    """Check the value of ``--data``: a name, or a path; options may follow behind a question mark."""
    bare = text.partition("?")[0]
    path = Path(bare).expanduser()
    if not (path.exists() or path.suffix == ".npz" or len(path.parts) > 1):
        one_of("data set", known_names("data set"), bare)
    return text


def one_of(what: str, names: Iterable[str], text: str, *, group: str | None = None, free: str | None = None) -> str:
    """Check the name of a ``what``: one of these, or an entry point of ``group``; text with ``free`` in it passes."""
    known = list(names)
    if text not in known and group is not None:
        known += installed_methods(group)
    if text not in known and not (free and free in text):
        raise argparse.ArgumentTypeError(str(UnknownNameError(what, text, known)))
    return text


def method_name(which: Methods, text: str) -> str:
    """Check the value of ``--method``: a name of this or another installed package, or ``package.module:Class``."""
    if ":" in text or text in known_methods(which):
        return text
    others = [*installed_methods(which), *(loaded_registry(which) or ())]
    return one_of(_REGISTRIES[which][0], {*known_methods(which), *others}, text)


def describe_methods(registry: "MethodRegistry") -> list[dict[str, Any]]:
    """Describe every method of a registry: what it is, its settings with intervals, changes at the scale cpu."""
    return [
        {
            "name": info.name, "title": info.title, "paper": info.paper, "summary": info.summary, "cost": info.cost,
            "defaults": info.build().to_json(), "scale_cpu": dict(getattr(info.build, "cpu_settings", {})),
            "ranges": dict(info.build.ranges),
        }
        for info in registry.entries()
    ]  # fmt: skip


def list_methods(arguments: argparse.Namespace, which: Methods) -> int:
    """Print every method, those of other installed packages included; warn about those that cannot be loaded.

    The registry, and with it torch, is imported only when another package adds a method and stores no description.
    """
    known = known_methods(which)
    if set(installed_methods(which)) - set(known):
        import_module(_REGISTRIES[which][1])
    registry = loaded_registry(which)
    documents: Sequence[Mapping[str, Any]] = list(known.values())
    if registry is not None:
        warn_of_broken(registry)
        documents = describe_methods(registry)
    lines: list[str] = []
    for one in documents:
        shown = " ".join(f"{name}={value}" for name, value in one["defaults"].items())
        about = [one["summary"], f"cost: {one['cost']}", f"defaults: {shown}"]
        if one["scale_cpu"]:
            changed = " ".join(f"{name}={_short(value)}" for name, value in one["scale_cpu"].items())
            about.append(f"--scale cpu: {changed}")
        lines += [f"{one['name']:10} {one['title']} ({one['paper']})", *(f"{'':10} {line}" for line in about), ""]
    return emit(arguments, documents, "\n".join(lines).rstrip())


def run_list(arguments: argparse.Namespace) -> int:
    """Print the presets of the benchmark."""
    known = _stored()["presets"]
    return emit(arguments, known, "\n".join(f"{name:22} {title}" for name, title in known.items()))


def warn_of_broken(registry: "MethodRegistry") -> None:
    """Print a warning for each method of another package that could not be loaded, with the reason."""
    for failed in registry.load_installed():
        print(f"indelible: warning: {' '.join(failed.split())}", file=sys.stderr)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
