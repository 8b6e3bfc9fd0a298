"""FP: ranking and pruning by hand, the budget, and channels that stay dead through fine-tuning."""

import pytest
import torch
from torch import Tensor, nn

from indelible.attacks import FinePruning
from indelible.attacks.fp import activation, quietest
from indelible.attacks.removal_attack import Removal, attack
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.nn.taps import FeatureReader, feature_reader
from tests.conftest import TinyNet, stripes
from tests.values import attack_value


def test_the_papers_settings() -> None:
    value = FinePruning()
    assert (value.epochs, value.lr, value.every, value.gamma, value.batch_size) == (30, 0.05, 5, 0.5, 128)
    assert (value.rate, value.ba_drop, value.protocol) == (None, 0.02, "sound")
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(InputError, match=r"must lie in \[0, 1\), got 1"):
        FinePruning(rate=1.0)


def test_the_quietest_channels_go_first() -> None:
    sizes = torch.tensor([3.0, 1.0, 2.0, 5.0, 4.0])
    assert quietest(sizes, 0.0).tolist() == [1, 1, 1, 1, 1]
    assert quietest(sizes, 0.4).tolist() == [1, 0, 0, 1, 1]
    assert quietest(sizes, 0.59).tolist() == [1, 0, 0, 1, 1]  # floor(2.95) = 2
    assert quietest(torch.arange(10.0), 0.7).sum() == 3  # 0.7 * 10 is 7.000000000000001 or 6.999...: seven go


class Split(nn.Module):
    """Two channels of four pixels: the image's first, and the negative of its second."""

    def __init__(self) -> None:
        super().__init__()
        self.pick = nn.Conv2d(3, 2, 1, bias=False)
        self.pick.weight.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])[:, :, None, None]
        self.out = nn.Linear(8, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.out(self.pick(images).flatten(1))
        return logits


def test_activation_is_the_mean_l1_norm_of_each_channel() -> None:
    """Two 2x2 images: channel sums 4 * 51 / 255 = 0.8 and 0; |second| sums 4 * 102 / 255 = 1.6 and 4 * 1 = 4."""
    images = torch.zeros(2, 3, 2, 2, dtype=torch.uint8)
    images[0, 0], images[0, 1], images[1, 1] = 51, 102, 255
    data = ImageData(images, torch.tensor([0, 1]), ("a", "b"))
    job = Removal(model=Split(), data=data, seed=0, device="cpu")
    reader = feature_reader(job.model, job.sample())
    assert reader == FeatureReader("out", 2, 8, tokens=False)
    assert activation(job, reader, data).tolist() == pytest.approx([0.4, 2.8])
    assert job.images == 2


def test_pruned_channels_stay_dead_and_the_curve_starts_at_the_stolen_model(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("fp", rate=0.5, epochs=2, batch_size=64), device="cpu")
    metrics = attacked.record.metrics
    assert (metrics["rate"], metrics["pruned"], metrics["channels"], metrics["layer"]) == (0.5, 8, 16, "head")
    weight = attacked.model.get_submodule("head").weight
    assert isinstance(weight, Tensor)
    by_channel = weight.detach().view(4, 16, 4).abs().sum((0, 2))
    assert int((by_channel == 0).sum()) == 8
    curve = attacked.curve
    assert curve is not None
    assert curve.values[0] == 0.0
    stolen = curve.build(0.0).state_dict()
    assert all(torch.equal(value, stolen[name]) for name, value in net.state_dict().items())


def test_sound_takes_the_largest_rate_within_the_budget(net: TinyNet) -> None:
    data = stripes(200)
    free = attack(net, data, attack_value("fp", epochs=1, ba_drop=1.0), device="cpu")
    assert free.record.metrics["rate"] == 0.95
    tight = attack(net, data, attack_value("fp", epochs=1, ba_drop=0.0), device="cpu")
    assert tight.curve is not None
    within = [
        value
        for value, found in zip(tight.curve.values, tight.curve.accuracies, strict=True)
        if found >= tight.curve.accuracies[0]
    ]
    assert tight.curve.chosen == max(within)


def test_paper_prunes_nine_tenths(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("fp", protocol="paper", epochs=1), device="cpu")
    assert (attacked.record.metrics["rate"], attacked.record.metrics["pruned"]) == (0.9, 14)
