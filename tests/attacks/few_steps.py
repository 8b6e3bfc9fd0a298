"""A few steps of an attack on networks of the catalogue: what it must not fail on, and the same bits twice."""

from typing import Any

import torch

from indelible.attacks.removal_attack import attack
from indelible.base.files import tensor_digest
from indelible.models import build_model
from tests.conftest import stripes
from tests.values import attack_value

__all__ = ["CATALOGUE", "check_few_steps"]

CATALOGUE = ("resnet-18", "resnet-w16-s2", "vit-tiny")


def check_few_steps(name: str, network: str, **settings: Any) -> None:
    """Attack ``network`` with eight images, twice on the small one: something changed, all finite, the same bits."""
    stolen = build_model(network, classes=4, shape=(3, 32, 32), seed=0).eval()
    attacked = attack(stolen, stripes(8), attack_value(name, ba_drop=1.0, **settings), device="cpu")
    before, after = stolen.state_dict(), attacked.model.state_dict()
    assert list(after) == list(before)
    assert all(bool(value.isfinite().all()) for value in after.values())
    assert any(not torch.equal(value, before[key]) for key, value in after.items())
    if network == "resnet-w16-s2":
        again = attack(stolen, stripes(8), attack_value(name, ba_drop=1.0, **settings), device="cpu")
        assert tensor_digest(again.model.state_dict()) == tensor_digest(after)
        other = attack(stolen, stripes(8), attack_value(name, ba_drop=1.0, **settings), device="cpu", seed=1)
        assert tensor_digest(other.model.state_dict()) != tensor_digest(after)
