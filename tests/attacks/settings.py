"""One row for each attack: the smallest settings that take every path. An attack without a row fails the tests."""

from collections.abc import Mapping
from typing import Any

__all__ = ["REFUSED", "SETTINGS"]

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ft": {"epochs": 2, "batch_size": 16},
    "fp": {"epochs": 2, "batch_size": 16},
    "anp": {"epochs": 2, "batch_size": 16},
    "nad": {"epochs": 2, "teacher_epochs": 1, "batch_size": 16},
    "mcr": {"epochs": 2, "end_epochs": 1, "batch_size": 16, "points": 3},
    "nnl": {"epochs": 2, "cleanse_epochs": 1, "batch_size": 16},
    "distill": {"epochs": 2, "batch_size": 16},
    "preprocess": {},
    "i-bau": {"rounds": 2, "steps": 2, "batch_size": 16},
    "super-ft": {"epochs": 2, "cycle": 2, "batch_size": 16},
    "ft-sam": {"epochs": 2, "batch_size": 16},
    "rnp": {"epochs": 2, "unlearn_epochs": 2, "batch_size": 16},
    "fst": {"epochs": 2, "batch_size": 16},
    "rehearse": {"epochs": 2, "trial_epochs": 1, "batch_size": 16},
    "invert": {"epochs": 2, "cleanse_epochs": 1, "cleanse_images": 16, "batch_size": 16},
    "sau": {"rounds": 2, "epochs": 1, "steps": 2, "batch_size": 16},
    "clp": {},
    "bnp": {},
    "magnitude": {},
    "quantise": {},
    "weight-noise": {},
    "overwrite": {"epochs": 2, "batch_size": 16},
}

# Networks that an attack must refuse before any work, and what its message says.
REFUSED: Mapping[tuple[str, str], str] = {
    (attack, network): "Choose an attack that needs none"
    for attack in ("clp", "bnp")
    for network in ("group-norm", "tied parameters", "transformer", "vit-tiny")
}
