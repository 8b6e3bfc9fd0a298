"""Inversion: prices and stamped rows by hand, a second patch of one class found elsewhere, all of them unlearnt."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from indelible.attacks.invert import SHARES, Inversion, PatternUnlearning, prices, stamp_rows
from indelible.attacks.neural_cleanse import NeuralCleanse, PatchSearch
from indelible.attacks.removal_attack import attack
from indelible.base.errors import InputError
from indelible.base.seeding import generator
from indelible.train.objective import Step
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.attacks.settings import SETTINGS
from tests.conftest import stripes
from tests.values import attack_value


def test_prices_by_hand() -> None:
    """Masks 0, 0.5 and 1, then 1, 0.5 and 0.25 at three pixels; repel 4: 1 + 4 * (1, 1, 1.25)."""
    one = torch.tensor([0.0, 0.5, 1.0]).reshape(1, 1, 1, 3)
    two = torch.tensor([1.0, 0.5, 0.25]).reshape(1, 1, 1, 3)
    assert prices([], 4.0) is None
    for masks, wanted in (([one], [1.0, 3.0, 5.0]), ([one, two], [5.0, 5.0, 6.0])):
        found = prices(masks, 4.0)
        assert found is not None
        torch.testing.assert_close(found.flatten(), torch.tensor(wanted))


def test_each_row_gets_its_own_patch_by_hand() -> None:
    """Image 0.2; patch 0: mask 1/4, pattern 1, gives 0.15 + 0.25 = 0.4; patch 1: mask 1, pattern 0.6, gives 0.6."""
    images = torch.full((3, 2, 1, 1), 0.2)
    masks = torch.tensor([0.25, 1.0]).reshape(2, 1, 1, 1)
    patterns = torch.tensor([1.0, 0.6]).reshape(2, 1, 1, 1).expand(2, 2, 1, 1)
    stamped = stamp_rows(images, masks, patterns, torch.tensor([1, 0, 1]))
    torch.testing.assert_close(stamped[:, 0, 0, 0], torch.tensor([0.6, 0.4, 0.6]))
    torch.testing.assert_close(stamped[:, 1], stamped[:, 0])


def test_the_last_rows_are_stamped_and_keep_their_labels() -> None:
    """A quarter of eight rows is two; the loss is the cross-entropy of the changed batch under the given labels."""
    random = torch.Generator().manual_seed(0)
    images, masks, patterns = (
        torch.rand(count, channels, 2, 2, generator=random) for count, channels in ((8, 3), (5, 1), (5, 3))
    )
    labels, model, by = torch.arange(8) % 4, nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), ((0.5,) * 3, (0.25,) * 3)
    objective = PatternUnlearning(masks, patterns, 0.25, normalize=by, seed=3)
    lost: list[Tensor] = []
    loss = objective.backward(Step(model, images, labels, 7, 0, lost.append))
    which = torch.randint(5, (2,), generator=generator(3, "patches", 7))
    wanted = images.clone()
    for row, patch in zip((6, 7), which.tolist(), strict=True):
        wanted[row] = (1 - masks[patch]) * images[row] + masks[patch] * (patterns[patch] - 0.5) / 0.25
    torch.testing.assert_close(objective.stamped(images, 7), wanted)
    torch.testing.assert_close(loss, F.cross_entropy(model(wanted), labels))
    torch.testing.assert_close(lost[0], loss)
    assert not torch.equal(objective.stamped(images, 8), wanted)


def test_a_price_scales_the_gradient_of_the_mask() -> None:
    """A model that ignores its input leaves lambda times the price as the only gradient, which Adam's moment shows."""

    class Blind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, images: Tensor) -> Tensor:
            return self.bias + 0.0 * images.mean((1, 2, 3))[:, None]

    dear = torch.ones(4, 1, 32, 32)
    dear[:, :, :, 16:] = 10.0
    # Of the variant "paper" lambda is fixed; its masks have a channel for each colour, which a price is shared by.
    settings = NeuralCleanse(variant="paper", epochs=1, batch_size=16, cost=0.5)
    first = [PatchSearch(settings, Blind(), stripes(16), seed=0, dear=given) for given in (None, dear)]
    for search in first:
        search.run()
    plain, priced = (search.state["raw_masks.mean"] for search in first)
    torch.testing.assert_close(priced[..., :16], plain[..., :16])
    torch.testing.assert_close(priced[..., 16:], 10.0 * plain[..., 16:])
    # d/draw sigmoid = s (1 - s); Adam's first moment is (1 - 0.5) of the gradient after one step.
    start = torch.rand(3, 32, 32, generator=generator(0, "patch", "raw_masks", 2)).sigmoid()
    torch.testing.assert_close(plain[2], 0.5 * 0.5 * start * (1 - start))


class TwoCorners(nn.Module):
    """The brightest bar decides, unless one of two corners of 3 x 3 pixels is white: then it is class 2."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(10.0))

    def forward(self, images: Tensor) -> Tensor:
        bars = images.mean((1, 3)).reshape(len(images), 4, 8).mean(2)
        corners = torch.stack([images[:, :, 1:4, 27:30], images[:, :, 28:31, 1:4]], 1).mean((2, 3, 4))
        return self.scale * (bars + torch.eye(4)[2] * 0.6 * (corners**4).amax(1, keepdim=True))


def test_the_second_search_finds_the_second_mark() -> None:
    """Two marks lead to one class; the dear place of the first drives the second search to the other."""
    search = NeuralCleanse(epochs=60, batch_size=16, round_images=64)
    places = (slice(1, 4), slice(27, 30)), (slice(28, 31), slice(1, 4))
    first = PatchSearch(search, TwoCorners(), stripes(128), seed=0).run()
    second = PatchSearch(search, TwoCorners(), stripes(128), seed=1, dear=prices([first.masks], 9.0)).run()
    inside = [
        [float(found.masks[2, 0][place].sum() / found.masks[2, 0].sum()) for place in places]
        for found in (first, second)
    ]
    taken = max(range(2), key=lambda place: inside[0][place])
    assert inside[0][taken] > 0.8
    assert inside[1][1 - taken] > 0.8
    assert float(second.success[2]) >= 0.99


class Backdoored(nn.Module):
    """The brightest bar decides, but for two places of 4 x 4 pixels that count with a gain if they are red.

    Images of bars have hardly any colour, so that clean images leave the gains alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.gains = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.ones(2))

    def forward(self, images: Tensor) -> Tensor:
        bars = images.mean((1, 3)).reshape(len(images), 4, 8).mean(2)
        places = torch.stack([images[:, :, 2:6, 26:30], images[:, :, 26:30, 2:6]], 1).mean((3, 4))
        red = (places[:, :, 0] - places[:, :, 1:].mean(2)).clamp_min(0.0) ** 2
        return self.scale * (bars + (red * self.gains) @ torch.eye(4)[[3, 0]])


def test_it_unlearns_marks_that_it_was_not_given() -> None:
    """A bar is 130 / 255 brighter than the rest: both gains fall below that, plain fine-tuning leaves them at 1."""
    thief = stripes(80, seed=2)
    how: dict[str, Any] = {"epochs": 6, "batch_size": 20, "lr": 0.05}
    searched: dict[str, Any] = {"cleanse_epochs": 25, "cleanse_batch": 16, "cleanse_round": 48}
    found = attack(
        Backdoored(), thief, attack_value("invert", patterns=1, ba_drop=0.1, **searched, **how), device="cpu"
    )
    tuned = attack(Backdoored(), thief, attack_value("ft", **how), device="cpu")
    assert float(found.model.state_dict()["gains"].max()) < 130 / 255
    assert float(tuned.model.state_dict()["gains"].min()) > 0.95
    assert [len(row) for row in found.record.metrics["mask_norms"]] == [4]
    assert found.curve is not None
    assert found.curve.values == SHARES


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps_on_networks_of_the_catalogue(network: str) -> None:
    check_few_steps("invert", network, **{**SETTINGS["invert"], "epochs": 1, "batch_size": 4})


def test_refusals() -> None:
    with pytest.raises(InputError, match="patterns must be at least 1, got 0"):
        Inversion(patterns=0)
    with pytest.raises(InputError, match=r"got 1\.5"):
        Inversion(share=1.5)
    with pytest.raises(InputError, match="cleanse_images must be at least 1, got 0"):
        Inversion(cleanse_images=0)
    with pytest.raises(InputError, match="one protocol"):
        Inversion(protocol="paper")
