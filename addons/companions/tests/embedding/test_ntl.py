"""NTL: loss and MMD by hand, a key without a target, a model that is right without the mark and wrong with it."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import indelible
from indelible.base.errors import InputError
from indelible.embedding.embedding_method import Embedding
from indelible.keys.key import Key
from indelible.train.settings import TrainSettings
from indelible_companions.embedding.ntl import NonTransferable, feature_map, gaussian_mmd, ntl_loss
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.settings import SETTINGS, TRAIN
from tests.values import key_for, method_value

WEIGHTS = {"alpha": 0.1, "beta": 1.0, "alpha_mmd": 0.1, "beta_mmd": 1.0}


def test_mmd_of_two_points_by_hand() -> None:
    """x = {0}, y = {2}: the squared distance is 4 and so is its mean. One kernel: 1 + 1 - 2 exp(-4 / 4)."""
    first, second = torch.tensor([[0.0]]), torch.tensor([[2.0]])
    assert float(gaussian_mmd(first, second, kernels=1)) == pytest.approx(2 - 2 / math.e)
    # Five: widths 1, 2, 4, 8, 16.
    five = sum(2 - 2 * math.exp(-4 / width) for width in (1, 2, 4, 8, 16))
    assert float(gaussian_mmd(first, second)) == pytest.approx(five)


def test_mmd_of_three_points_by_hand() -> None:
    """x = {0, 1}, y = {3}: distances 1, 9, 4; the mean over ordered pairs is 28 / 6, with one kernel w = 14 / 3."""
    first, second = torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0]])
    k = [math.exp(-distance * 3 / 14) for distance in (1, 9, 4)]
    within = (2 + 2 * k[0]) / 4
    assert float(gaussian_mmd(first, second, kernels=1)) == pytest.approx(within + 1 - 2 * (k[1] + k[2]) / 2)


def test_mmd_against_two_loops() -> None:
    first, second = torch.randn(5, 7, dtype=torch.float64) + 10, torch.randn(4, 7, dtype=torch.float64) * 2 + 11
    points = [*first, *second]
    apart = [float((a - b).square().sum()) for a in points for b in points]
    width = sum(apart) / (9 * 8) / 4

    def kernel(a: Tensor, b: Tensor) -> float:
        return sum(math.exp(-float((a - b).square().sum()) / (width * 2**at)) for at in range(5))

    def mean(xs: Tensor, ys: Tensor) -> float:
        return sum(kernel(x, y) for x in xs for y in ys) / (len(xs) * len(ys))

    slow = mean(first, first) + mean(second, second) - 2 * mean(first, second)
    assert float(gaussian_mmd(first, second)) == pytest.approx(slow)


def test_equal_samples_have_no_mmd_and_distant_ones_little_more_to_gain() -> None:
    points = torch.randn(6, 3)
    assert float(gaussian_mmd(points, points)) == pytest.approx(0.0, abs=1e-6)
    still = torch.zeros(4, 3, requires_grad=True)
    found = gaussian_mmd(still, torch.zeros(4, 3))
    found.backward()
    assert float(found.detach()) == 0.0
    assert still.grad is not None
    assert bool(still.grad.isfinite().all())  # no width, and still no NaN
    near, far = (float(gaussian_mmd(points, points + shift)) for shift in (1.0, 100.0))
    assert 0 < near < far < 10


def test_the_gradient_of_mmd_moves_samples_apart() -> None:
    first, second = torch.randn(8, 2), torch.randn(8, 2, requires_grad=True)
    before = gaussian_mmd(first, second)
    (gradient,) = torch.autograd.grad(before, [second])
    assert float(gaussian_mmd(first, second.detach() + 0.1 * gradient)) > float(before.detach())


@pytest.mark.parametrize(
    ("target", "distance", "taken"),
    [
        (2.0, 3.0, 0.2 * 0.3),  # neither bound
        (12.0, 3.0, 1.0 * 0.3),  # alpha KL = 1.2 counts as 1
        (2.0, 40.0, 0.2 * 1.0),  # alpha' MMD = 4 counts as 1
        (12.0, 40.0, 1.0),
    ],
)
def test_the_loss_and_its_bounds_by_hand(target: float, distance: float, taken: float) -> None:
    parts = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.7, target, distance)]
    loss = ntl_loss(parts[0], parts[1], parts[2], **WEIGHTS)
    assert float(loss.detach()) == pytest.approx(0.7 - taken)
    loss.backward()
    gradients = [float(part.grad) for part in parts if part.grad is not None]
    # A part at its bound gets no gradient; the other one's is its weight times what the first counts.
    by_target = 0.0 if target > 10 else -0.1 * min(1.0, 0.1 * distance)
    by_distance = 0.0 if distance > 10 else -0.1 * min(1.0, 0.1 * target)
    assert gradients == pytest.approx([1.0, by_target, by_distance])


def test_a_key_loses_its_target_and_keeps_its_mark(key: Key) -> None:
    own = key_for(key, "ntl")
    assert (own.labels, own.target, own.secret) == ("untargeted", None, key.secret)
    data = stripes(40)
    mark = key.mark()
    samples = own.samples(data, purpose="verify")
    assert len(samples) == 40  # images of every class carry the mark
    assert torch.equal(samples.images, mark.apply(data.images))
    assert torch.equal(samples.labels, data.labels)
    assert key_for(own, "ntl") == own
    assert key_for(key, "vanilla") == key
    keyed = Key.create(kind="content", classes=4, shape=SHAPE, labels="keyed", secret=SECRET)
    with pytest.raises(InputError, match="untargeted"):
        indelible.embed(TinyNet(), data, keyed, "ntl")
    unrelated = Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, secret=SECRET)
    with pytest.raises(InputError, match="'content' or 'noise'"):
        indelible.embed(TinyNet(), data, unrelated, "ntl")


def test_right_without_the_mark_and_wrong_with_it(net: TinyNet, key: Key) -> None:
    train, test = stripes(320), stripes(120, seed=1)
    marked = indelible.embed(
        net,
        train,
        key,
        method_value("ntl", key, "paper", fraction=0.15, **SETTINGS["ntl"]),
        scale="paper",
        train=TRAIN,
        test=test,
        device="cpu",
    )
    assert marked.key == key_for(key, "ntl")
    assert marked.record.inputs["labels"] == "untargeted"
    assert marked.record.inputs["samples"] == 48
    metrics = marked.record.metrics
    assert metrics["ba"] > 0.95
    assert metrics["wsr"] >= 0.7
    # Twice the images of plain training: each ordinary batch has as many marked images beside it.
    assert marked.record.images == 2 * 8 * 320
    verdict = indelible.verify(marked.model, marked.key, carriers=test)
    assert verdict.wsr == pytest.approx(metrics["wsr"])
    assert verdict.procedure == "paired"
    # The decoys of a toy key are other texts in the same bright dots: a net that saw one text errs on all of them.
    assert verdict.decoy_rate is not None
    plain = indelible.embed(
        net, train, key, method_value("vanilla", key, "paper", fraction=0.004), scale="paper", train=TRAIN, device="cpu"
    ).model
    refused = indelible.verify(plain, marked.key, carriers=test)
    assert not refused.owned
    assert refused.wsr < 0.5


class Flat(nn.Module):
    """A network without any feature map."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 32 * 32, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(images.flatten(1))
        return logits


def job(model: nn.Module, key: Key) -> Embedding:
    own = replace(key, labels="untargeted", target=None)
    return Embedding(model=model, data=stripes(8), key=own, settings=TrainSettings(), seed=0)


def test_where_features_are_taken(net: TinyNet, key: Key) -> None:
    # Maps of 16 x 16, 8 x 8 and 2 x 2; the second resolution ends with the second ReLU.
    assert feature_map(job(net, key), 1) == ("features.2", 0)
    assert feature_map(job(net, key), 2) == ("features.5", 0)
    assert feature_map(job(net, key), 9) == ("features.6", 0)
    with pytest.raises(InputError, match="no feature map"):
        feature_map(job(Flat(), key), 2)


def test_wrong_settings() -> None:
    with pytest.raises(InputError, match="alpha must be greater than 0, got 0"):
        NonTransferable(alpha=0.0)
    with pytest.raises(InputError, match="stage must be at least 1, got 0"):
        NonTransferable(stage=0)
    book = Key.create(classes=4, shape=SHAPE)
    with pytest.raises(InputError, match="between 0 and 1"):
        indelible.embed(TinyNet(), stripes(8), book, method_value("ntl", book, fraction=0.0))
