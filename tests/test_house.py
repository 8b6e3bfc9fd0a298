"""Rules of the house that a program can check."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import indelible
import indelible_companions

SOURCE = Path(indelible.__file__).parent
# Imports only point left.
ROOMS = (
    "base", "data", "models", "keys", "nn", "train", "verification", "embedding", "integrations", "attacks", "evidence",
    "bench", "analyze", "report", "cli",
)  # fmt: skip


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name.split(".")[1] for name in found if name.startswith("indelible.")}


def test_imports_only_point_left() -> None:
    assert {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")} > set(ROOMS)
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room.endswith(".py"):
            continue
        assert room in ROOMS, f"{path}: unknown room {room}"
        for other in imports_of(path):
            assert ROOMS.index(other) <= ROOMS.index(room), f"{path} imports from {other}, which lies to the right"


def test_no_two_classes_have_one_name() -> None:
    """A private one may not have the name of a public one either: it is read as the same thing."""
    homes: dict[str, list[str]] = {}
    for path in [*SOURCE.rglob("*.py"), *Path(indelible_companions.__file__).parent.rglob("*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name.lstrip("_"), []).append(f"{path}: {node.name}")
    assert len(homes) > 200
    public = [found for name, found in homes.items() if any(one.endswith(f": {name}") for one in found)]
    assert not [found for found in public if len(found) > 1]


def test_no_two_files_have_one_name() -> None:
    """The files of commands are left out: they are called like the command."""
    names = [path.name for path in SOURCE.rglob("*.py") if path.parent.name != "cli" and path.name != "__init__.py"]
    assert len(names) > 150
    assert sorted(names) == sorted(set(names))


def test_every_package_that_is_imported_is_declared_and_explained() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [
        *project["dependencies"],
        *(one for extra in extras if extra not in {"dev", "docs"} for one in extras[extra]),
    ]
    declared = [re.split(r"[^\w-]", one)[0] for one in declared]
    page = (root / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert not [name for name in declared if not re.search(rf"^\|.*\b{name}\b", page, re.MULTILINE)]
    imported = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    # `lightning` is the larger package with the same trainer: taken if it is there, never asked for.
    foreign = imported - sys.stdlib_module_names - {"indelible", "lightning"}
    packages = {"PIL": "pillow"}
    assert {packages.get(name, name.replace("_", "-")) for name in foreign} <= set(declared)


def test_nothing_imports_the_add_on() -> None:
    """What a command of it needs is found by entry points, or imported by name when the command is used."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("indelible_companions") for name in names), path


def test_nothing_unpickles() -> None:
    restricted_reads = 0
    for path in [*SOURCE.rglob("*.py"), *Path(indelible_companions.__file__).parent.rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"load", "loads"}
            ):
                owner = ast.unparse(node.func.value)
                # A .pt file that a user names is read by torch's restricted reader, in one place.
                given = {word.arg: ast.unparse(word.value) for word in node.keywords}
                restricted = given.get("weights_only") == "True"
                if owner == "torch" and restricted and path == SOURCE / "base" / "weights.py":
                    restricted_reads += 1
                    continue
                assert owner not in {"pickle", "dill", "joblib", "cloudpickle", "torch"}, f"{path}:{node.lineno}"
    assert restricted_reads == 1


def test_every_public_name_is_there() -> None:
    homes = {name: room for room, names in indelible._ROOMS.items() for name in names}
    for name in indelible.__all__:
        home = importlib.import_module(homes.get(name, "indelible.base.errors"))
        assert getattr(indelible, name) is getattr(home, name), name
    assert set(indelible.__all__) <= set(dir(indelible))
    assert "__version__" in dir(indelible)
    with pytest.raises(AttributeError, match="no attribute 'emebd'"):
        indelible.emebd  # type: ignore[attr-defined]  # noqa: B018 - a type checker must refuse it too


def test_lazy_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        node.module: tuple(name.name for name in node.names)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
    }
    assert seen == indelible._ROOMS
    eager = {name for name in indelible.__all__ if name.endswith("Error")}
    assert {name for names in seen.values() for name in names} == set(indelible.__all__) - eager


def test_no_name_hides_a_module() -> None:
    """``import indelible.train.loop as l`` gives the module, in every package."""
    code = """
import importlib, pkgutil, sys
import indelible, indelible_companions
walked = 0
for package in (indelible, indelible_companions):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if found.name.startswith("indelible.integrations."):
            continue  # the trainers take seconds to import, and may not be installed
        module = importlib.import_module(found.name)
        parent, _, name = found.name.rpartition(".")
        assert getattr(sys.modules[parent], name) is module, parent + " has another " + name + " than its module"
        walked += 1
assert walked > 150, walked
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_a_room_does_not_hide_the_function_of_its_name() -> None:
    code = """
import indelible.embedding.embedding_method, indelible.verification.suspects, indelible
from indelible.embedding import embed
from indelible.verification import verify
assert indelible.embed is embed and indelible.verify is verify
import indelible.embedding.mixing
assert indelible.embed is embed
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_room_can_be_imported_first() -> None:
    """The order in which rooms and public names are imported must not matter."""
    code = """
import importlib, sys
for room in sys.argv[1:]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "indelible"]:
        del sys.modules[name]
    importlib.import_module(f"indelible.{room}")
"""
    rooms = [room for room in ROOMS if (SOURCE / room / "__init__.py").is_file()]
    assert len(rooms) > 10
    subprocess.run([sys.executable, "-c", code, *rooms], check=True)


def test_import_leaves_torch_alone() -> None:
    code = "import sys, indelible; assert 'torch' not in sys.modules; indelible.Key; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_is_quick() -> None:
    """Under two seconds beyond torch; processor time, which other work on the machine does not lengthen."""
    code = (
        "import time, torch; began = time.process_time(); from indelible import *; print(time.process_time() - began)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(found) < 2.0


def test_heavy_and_optional_packages_are_not_imported() -> None:
    code = "import sys; from indelible import *; print(*[name for name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    optional = {
        "matplotlib",
        "lightning_fabric",
        "rich",
        "scipy.stats",
        "PIL.Image",
        "jinja2",
        "transformers",
        "sklearn",
    }
    assert not optional & set(loaded)


def test_no_function_of_the_surface_hides_a_package() -> None:
    """``import indelible.embedding.mixing as m`` works, whatever was used before."""
    folders = {path.name for path in (Path(indelible.__file__).parent).iterdir() if path.is_dir()}
    assert not folders & set(indelible.__all__)
