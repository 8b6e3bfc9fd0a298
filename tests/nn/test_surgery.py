"""Surgery: calls with other tensors, whatever is shared; other forwards and modes, put back; fresh copies."""

import copy

import pytest
import torch
from torch import Tensor, nn

from indelible.nn.surgery import call_with, fresh_copy, kept_modes, places, standing_in
from tests.attacks.networks import Tied, Twice, make_network
from tests.conftest import TinyNet

IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


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
    with pytest.raises(RuntimeError, match="3 channels, but got 5"):
        call_with(model, doubled(model), torch.rand(1, 5, 32, 32))
    assert {name: id(weight) for name, weight in model.named_parameters(remove_duplicate=False)} == before


class WithToken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.arange(50.0))
        self.net = TinyNet()


def test_nothing_is_left_and_the_seed_decides() -> None:
    trained = WithToken()
    with torch.no_grad():
        for weight in trained.net.parameters():
            weight.add_(10.0)
        nn.init.constant_(trained.net.get_buffer("features.1.running_mean"), 7.0)
    state = torch.get_rng_state()
    fresh, twin, other = (fresh_copy(trained, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert type(fresh) is WithToken
    assert all(float(weight.detach().abs().max()) < 2.0 for name, weight in fresh.named_parameters() if name != "token")
    assert float(fresh.get_buffer("net.features.1.running_mean").abs().max()) == 0.0
    token = fresh.get_parameter("token").detach()
    assert not torch.equal(token, trained.token)
    assert torch.equal(token.sort().values, trained.token)
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name])
    assert not torch.equal(fresh.get_parameter("net.head.weight"), other.get_parameter("net.head.weight"))
    assert float(trained.net.head.weight.detach().min()) > 5.0


def test_forwards_and_modes_are_put_back_after_an_exception() -> None:
    net = TinyNet().train()
    net.features[1].eval()
    layer = net.features[4]

    def interrupted() -> None:
        with standing_in({layer: lambda rows: rows + 2.0, net.head: lambda rows: rows + 3.0}), kept_modes(net):
            net.eval()
            assert float(layer(net.head(torch.zeros(())))) == 5.0
            raise RuntimeError("in the middle")

    with standing_in({layer: lambda rows: rows + 1.0}):
        with pytest.raises(RuntimeError, match="in the middle"):
            interrupted()
        assert float(layer(torch.zeros(()))) == 1.0
    assert all("forward" not in module.__dict__ for module in net.modules())
    assert [module.training for module in net.features] == [True, False, *[True] * (len(net.features) - 2)]
