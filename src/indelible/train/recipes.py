"""Recipes: named changes on top of a preset, of the training and of the embedding method together.

``light`` leaves the training as it is and makes the watermark passes cheaper. ``fast`` is for the shortest time to a
protected model. What it is made of, and where each part comes from:

| part | here | where |
|---|---|---|
| the whole data set as one tensor on the device | always so for data in memory | :mod:`indelible.data.images` |
| crops and flips of whole batches on the device | always so | :mod:`indelible.data.augment` |
| flips that alternate between epochs | ``augmentation="crop-alternate"`` | airbench (Jordan, 2024) |
| one cycle of the learning rate, Nesterov momentum | ``schedule``, ``nesterov`` | Smith and Topin, 2018 |
| fewer epochs, larger batches, the rate scaled with them | ``epochs``, ``batch_size``, ``lr`` | Goyal et al., 2017 |
| bfloat16 where the device has it | ``precision="auto"`` is always so | :mod:`indelible.train.devices` |
| ``torch.compile`` on CUDA | ``compile`` | torch |
| fewer rows and steps with watermark passes | ``EmbeddingMethod.recipes`` | docs/speed.md |

Left out: label smoothing, which works against the watermark's own labels and has not been shown to keep the WSR; CUDA
graphs, which the changing passes of a step do not fit. What is given by hand wins over a recipe.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from indelible.base.registry import Registry
from indelible.train.presets import Start
from indelible.train.schedule import Schedule

__all__ = ["RECIPES", "Recipe"]


@dataclass(frozen=True)
class Recipe:
    """Changes under a name.

    Attributes:
        name: The name on the command line.
        summary: What it is for.
        always: Changes to any training settings.
        scratch: Changes for a fresh network, by preset; a model that is trained already keeps its preset's short form.
        cuda: Changes on CUDA.
    """

    name: str
    summary: str
    always: Mapping[str, Any] = field(default_factory=dict)
    scratch: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cuda: Mapping[str, Any] = field(default_factory=dict)

    def changes(self, preset: str, start: Start = "scratch", device: str = "auto") -> dict[str, Any]:
        """Return the changes to the training settings of a preset."""
        on_cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        fresh = self.scratch.get(preset, {}) if start == "scratch" else {}
        return {**self.always, **fresh, **(self.cuda if on_cuda else {})}


RECIPES: Registry[Recipe] = Registry("recipe")
RECIPES.add(Recipe("light", "the preset's own training, with cheaper watermark passes"))
RECIPES.add(
    Recipe(
        "fast",
        "the shortest time to a protected model",
        always={"augmentation": "crop-alternate", "nesterov": True, "schedule": Schedule.one_cycle()},
        scratch={
            "paper": {"epochs": 40, "batch_size": 512, "lr": 0.4},
            "cpu": {"epochs": 7, "batch_size": 128, "lr": 0.1, "evaluate_every": 4},
        },
        cuda={"compile": True},
    )
)
