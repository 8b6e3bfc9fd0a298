"""Calls with other tensors: equal to a copy that holds them, and the model as it was, whatever it shares."""

import copy

import pytest
import torch
from torch import Tensor, nn

from indelible.nn.substitution import call_with, places
from tests.attacks.networks import Tied, Twice, make_network
from tests.conftest import TinyNet

IMAGES = torch.rand(4, 3, 32, 32)


def doubled(model: nn.Module) -> dict[str, Tensor]:
    return {name: 2.0 * weight for name, weight in model.named_parameters()}


@pytest.mark.parametrize("build", [TinyNet, Twice, Tied])
def test_a_call_equals_a_copy_and_leaves_the_model_alone(build: type[nn.Module]) -> None:
    """Two calls, each with its own backward pass; the gradient by tensor is that of the copy."""
    model = build().eval()
    held = places(model)
    for _ in range(2):
        other = copy.deepcopy(model)
        with torch.no_grad():
            for weight in other.parameters():
                weight.mul_(2.0)
        tensors = doubled(model)
        answer = call_with(model, tensors, IMAGES)
        assert torch.equal(answer, other(IMAGES))
        gradients = torch.autograd.grad(answer.square().sum(), list(model.parameters()))
        expected = torch.autograd.grad(other(IMAGES).square().sum(), list(other.parameters()))
        for found, wanted in zip(gradients, expected, strict=True):
            torch.testing.assert_close(found, 2.0 * wanted)
        assert {name: id(weight) for name, weight in places(model).items()} == {
            name: id(weight) for name, weight in held.items()
        }


def test_places_by_hand() -> None:
    """A module under two names has its places once; a tied parameter has one in each module."""
    assert set(places(make_network("one module twice"))) == {
        "stem.weight", "stem.bias", "first.0.weight", "first.0.bias", "first.1.weight", "first.1.bias", "out.weight",
        "out.bias",
    }  # fmt: skip
    tied = places(make_network("tied parameters"))
    assert tied["later.weight"] is tied["earlier.weight"]
    assert len(tied) == 10
    assert set(places(nn.Linear(2, 2))) == {"weight", "bias"}


def test_any_name_of_a_parameter_will_do() -> None:
    """``earlier.weight`` is the second name of ``later.weight``: both layers get the tensor."""
    model = Tied().eval()
    zero = torch.zeros_like(model.later.weight)
    answers = [call_with(model, {name: zero}, IMAGES) for name in ("later.weight", "earlier.weight")]
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[0][:1].expand(4, -1))  # later(0 * x + b) no longer depends on the image


def test_the_model_is_as_it_was_after_an_exception() -> None:
    model = Twice()
    before = {name: id(weight) for name, weight in model.named_parameters(remove_duplicate=False)}
    with pytest.raises(RuntimeError):
        call_with(model, doubled(model), torch.rand(1, 5, 32, 32))
    assert {name: id(weight) for name, weight in model.named_parameters(remove_duplicate=False)} == before
