"""A fresh copy has the structure of a network and nothing of its weights."""

import torch
from torch import nn

from indelible.nn.fresh import fresh_copy
from tests.conftest import TinyNet


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
