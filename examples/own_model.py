"""Protect a network of your own class: any nn.Module that maps images to logits, whatever its layers are called.

Run it: python examples/own_model.py   (seconds on a CPU)
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

import indelible
from indelible.attacks import FineTuning
from indelible.embedding import AdversarialPerturbation


class Answer(NamedTuple):
    """What the network returns: logits first; tensors, tuples and objects with `.logits` all work."""

    logits: Tensor
    features: Tensor


class Gated(nn.Module):
    """Convolutions with a gate, one BatchNorm, a head whose weights are tied to nothing in particular."""

    def __init__(self, classes: int, width: int = 24) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 5, stride=3)
        self.oddly_named = nn.BatchNorm2d(width)
        self.value, self.gate = nn.Conv2d(width, width, 3, stride=2), nn.Conv2d(width, width, 3, stride=2)
        self.head = nn.LazyLinear(classes)

    def forward(self, images: Tensor) -> Answer:
        """Map float images (N, 1, 28, 28) to logits (N, classes)."""
        x = torch.relu(self.oddly_named(self.stem(images)))
        features = (self.value(x) * torch.sigmoid(self.gate(x))).flatten(1)
        return Answer(self.head(features), features)


def main() -> None:
    """Embed, attack, verify."""
    torch.manual_seed(0)
    train, test = indelible.load("fashion-mini")
    owner, attacker = train.subset(torch.arange(1500)), train.subset(torch.arange(1500, 1900))
    test = test.subset(torch.arange(600))
    model = Gated(classes=10)
    model(torch.zeros(2, *train.shape))  # lazy layers take their shapes from a first batch

    key = indelible.Key.create(kind="noise", classes=10, shape=train.shape)
    how = {"epochs": 4, "batch_size": 64, "lr": 0.05, "augmentation": "none"}
    app = AdversarialPerturbation.for_key(key, alpha=0.3, rows=32, clean_rows=32)
    protected = indelible.embed(model, owner, key, app, train=how)
    stolen = indelible.attack(protected.model, attacker, FineTuning.at_scale(epochs=2))
    for name, suspect in (("protected", protected.model), ("after fine-tuning", stolen.model), ("unmarked", model)):
        verdict = indelible.verify(suspect, key, carriers=test)
        word = "OWNED" if verdict.owned else "NOT SHOWN"
        print(f"{name}: {word}, BA {verdict.ba:.1%}, WSR {verdict.wsr:.1%}, p = {verdict.p_value:.2g}")


if __name__ == "__main__":
    main()
