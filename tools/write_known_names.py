"""Write src/indelible/cli/known_names.json again from the registries: after a method, model or setting has changed.

The descriptions of the add-on's methods go into its own file of this name, if it is installed.
"""

import json
from pathlib import Path
from typing import Any

from indelible.attacks import ATTACKS
from indelible.attacks.removal_attack import PROTOCOLS
from indelible.base.checks import setting_names
from indelible.base.files import write_json
from indelible.bench.preset import load_preset, preset_names
from indelible.cli.known_names import FILE, describe_methods, installed_methods
from indelible.data.sources import SOURCES
from indelible.embedding import EMBEDDINGS
from indelible.keys.marks import MARKS
from indelible.keys.rules import LABELS, SCHEMES
from indelible.models import MODELS
from indelible.train import TrainSettings
from indelible.train.settings import SCALES, STARTS
from indelible.verification.procedures import PROCEDURES


def collect_names() -> dict[str, Any]:
    """Return the content of ``known_names.json``, from the registries."""
    own = {
        "attacks": [one for one in describe_methods(ATTACKS) if one["name"] not in installed_methods("attacks")],
        "embeddings": [
            one for one in describe_methods(EMBEDDINGS) if one["name"] not in installed_methods("embeddings")
        ],
    }
    names = {
        "data set": list(SOURCES),
        "kind": [*sorted(set(MARKS) - set(installed_methods("marks"))), "plain"],
        "labels": LABELS,
        "model": list(MODELS),
        "preset": preset_names(),
        "procedure": ["auto", *PROCEDURES],
        "protocol": PROTOCOLS,
        "recipe": sorted({recipe for info in EMBEDDINGS.entries() for recipe in info.build.recipes}),
        "scale": list(SCALES),
        "scheme": SCHEMES,
        "start": STARTS,
    }
    presets = {name: load_preset(name).title for name in preset_names()}
    names["training setting"] = setting_names(TrainSettings)
    training = {"defaults": TrainSettings().to_json(), "ranges": TrainSettings.ranges}
    found: dict[str, Any] = json.loads(json.dumps({**own, "presets": presets, "training": training, "names": names}))
    return found


def collect_companions() -> dict[str, Any]:
    """Return the content of the add-on's ``known_names.json``."""
    own = {info.name for info in EMBEDDINGS.entries() if info.build.__module__.startswith("indelible_companions.")}
    found: dict[str, Any] = json.loads(
        json.dumps({"embeddings": [one for one in describe_methods(EMBEDDINGS) if one["name"] in own]})
    )
    return found


def main() -> None:
    """Write the files."""
    root = Path(__file__).parents[1]
    package = root / "addons" / "companions" / "src" / "indelible_companions"
    for folder, found in ((root / "src" / "indelible" / "cli", collect_names()), (package, collect_companions())):
        if folder == package and not found["embeddings"]:
            continue  # not installed
        write_json(folder / FILE, found)
        print(f"wrote {folder / FILE}")


if __name__ == "__main__":
    main()
