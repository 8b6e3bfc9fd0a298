"""Reactions and resets by hand; what may be reset of one layer, of layers that share a weight, of neighbours."""

import pytest
import torch
from torch import nn

from indelible.attacks.nnl import as_one, layer_of, reactions, reset, resettable, strongest
from indelible.models import build_model
from tests.attacks.networks import Tied
from tests.attacks.test_nnl import Two


def test_reactions_by_hand() -> None:
    """Two images of 2 x 2; the patch raises one pixel by 1 (first image only) and another by 0.5 (both).

    Channel 0 grows on average by 0.5 at both places, channel 1 at most by 0 (elsewhere); the sums by 1 and -1.
    """
    clean = torch.zeros(2, 1, 2, 2)
    patched = clean.clone()
    patched[0, 0, 0, 0], patched[:, 0, 1, 1] = 1.0, 0.5
    found = reactions(Two(), iter([(clean[:1], patched[:1]), (clean[1:], patched[1:])]))
    assert list(found) == ["convolution", "dense"]
    torch.testing.assert_close(found["convolution"][1], torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(found["dense"][1], torch.tensor([1.0, -1.0]))
    assert [size for _, _, size in found.values()] == [(2, 2), ()]


def test_reset_folds_into_the_weights() -> None:
    """A reset channel answers zero whatever it sees; the others answer what they did."""
    net = Two()
    images = torch.rand(3, 1, 2, 2)
    before = net.convolution(images)
    assert reset(net.convolution, torch.tensor([True, False])) == 1
    after = net.convolution(images)
    assert torch.equal(after[:, 0], torch.zeros(3, 2, 2))
    assert torch.equal(after[:, 1], before[:, 1])
    reset(net.convolution, torch.tensor([False, True]), bias=False)
    assert torch.equal(net.convolution(images)[:, 1], torch.full((3, 2, 2), 5.0))


def test_token_layers_react_by_neuron() -> None:
    """A dense layer on tokens (N, T, D): each neuron by the token where it grows most."""
    layer = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [-2.0]]))
    clean, patched = torch.zeros(1, 3, 1), torch.tensor([[[1.0], [-3.0], [0.0]]])
    found = reactions(layer, iter([(clean, patched)]))
    torch.testing.assert_close(found[""][1], torch.tensor([1.0, 6.0]))


def test_fewer_than_half_of_a_layer_may_be_reset() -> None:
    """All react: of five channels the two strongest, of four one, of two or one none. Of equals, the first."""
    assert resettable(torch.tensor([2.0, 5.0, 3.0, 4.0, 1.5])).tolist() == [False, True, False, True, False]
    assert resettable(torch.tensor([2.0, 3.0, 3.0, 3.0])).tolist() == [False, True, False, False]
    assert resettable(torch.tensor([2.0, 3.0])).tolist() == [False, False]
    assert resettable(torch.tensor([2.0])).tolist() == [False]
    # 1 is the threshold itself, which does not react.
    assert resettable(torch.tensor([1.0, 0.5, 2.0, 0.0, -3.0])).tolist() == [False, False, True, False, False]


def test_strongest_by_hand() -> None:
    """May be reset: 3 (of five), 2 and 1.5 (of six; 1.2 is a third of them). A third of these is the 3, and so on."""
    excesses = {
        "one": torch.tensor([0.5, 3.0, 0.0, 0.0, 0.0]), "two": torch.tensor([1.5, -2.0, 2.0, 1.2, 0.0, 0.0])
    }  # fmt: skip
    wanted: dict[float, tuple[list[int], list[int]]] = {
        0.0: ([], []), 1 / 3: ([1], []), 2 / 3: ([1], [2]), 1.0: ([1], [0, 2])
    }  # fmt: skip
    for share, (one, two) in wanted.items():
        found = strongest(excesses, share)
        assert (found["one"].nonzero().flatten().tolist(), found["two"].nonzero().flatten().tolist()) == (one, two)
    assert strongest({}, 1.0) == {}


def test_layers_that_share_a_weight_react_as_one() -> None:
    """Alone, ``later`` would lose its first channels and ``earlier`` its last: together all."""
    excesses = {"later": torch.tensor([4.0, 3.0, 0.0, 0.0]), "earlier": torch.tensor([0.0, 1.0, 2.0, 5.0])}
    found = as_one(Tied(), {**excesses, "stem": torch.zeros(4)})
    assert found["later"].tolist() == found["earlier"].tolist() == [4.0, 3.0, 2.0, 5.0]
    assert found["stem"].tolist() == [0.0] * 4


@pytest.mark.parametrize("reacting", ["the same", "the others"])
def test_a_depthwise_convolution_keeps_a_channel_of_those_it_is_given(reacting: str) -> None:
    """Whatever reacts in a pointwise and in the depthwise convolution behind it, images still differ behind both."""
    for channels in range(1, 7):
        pointwise, depthwise = nn.Conv2d(3, channels, 1), nn.Conv2d(channels, channels, 3, groups=channels)
        excess = torch.arange(channels) + 2.0
        other = excess if reacting == "the same" else excess.flip(0)
        for layer, which in ((pointwise, excess), (depthwise, other)):
            reset(layer, strongest({"layer": which}, 1.0)["layer"])
        answers = depthwise(pointwise(torch.rand(2, 3, 3, 3)))
        assert not torch.equal(answers[0], answers[1])


def test_mobilenet_learns_on_though_every_layer_reacts() -> None:
    """The package's own MobileNetV2, all of whose channels exceed their threshold.

    Reset whole, no layer would pass an image or a gradient on any more.
    """
    net = build_model("mobilenet-v2", classes=4, shape=(3, 28, 28), seed=0)
    random = torch.Generator().manual_seed(0)
    names = [name for name, one in net.named_modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    excesses = {name: 2 + torch.rand(len(layer_of(net, name).weight), generator=random) for name in names}
    for name, which in strongest(excesses, 1.0).items():
        assert 0 < reset(layer_of(net, name), which) < len(which) / 2
    images = torch.rand(4, 3, 28, 28, generator=random)
    nn.functional.cross_entropy(net.train()(images), torch.arange(4)).backward()
    gradients = [layer_of(net, name).weight.grad for name in names]
    assert all(one is not None and bool(one.isfinite().all()) for one in gradients)
    assert gradients[0] is not None
    assert gradients[0].abs().sum() > 0
