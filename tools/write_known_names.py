"""Write src/indelible/cli/known_names.json again from the registries: after a method, model or setting has changed."""

import json
from pathlib import Path
from typing import Any

from indelible.analyze.tsne import PATHS
from indelible.attacks import ATTACKS
from indelible.attacks.base import PROTOCOLS
from indelible.base.checks import setting_names
from indelible.base.files import write_json
from indelible.cli.known_names import FILE, describe_methods, installed_methods
from indelible.data.sources import SOURCES
from indelible.embedding import EMBEDDINGS
from indelible.keys.marks import MARKS
from indelible.keys.rules import LABELS
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
        "path": PATHS,
        "protocol": PROTOCOLS,
        "recipe": sorted({recipe for info in EMBEDDINGS.entries() for recipe in info.build.recipes}),
        "scale": list(SCALES),
        "start": STARTS,
        "test": ["auto", *PROCEDURES],
        "training setting": setting_names(TrainSettings),
    }
    found: dict[str, Any] = json.loads(json.dumps({**own, "names": names}))
    return found


def main() -> None:
    """Write the file."""
    path = Path(__file__).parents[1] / "src" / "indelible" / "cli" / FILE
    write_json(path, collect_names())
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
