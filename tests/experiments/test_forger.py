"""The forger: it wins where it may choose, on models that are told apart by hand, and is bounded where it may not."""

import pytest
import torch
from torch import Tensor, nn

from forger import (
    grinding_bound,
    ground_key,
    ground_labels,
    stamped,
    transferable,
    universal_trigger,
)
from indelible.base.errors import InputError
from indelible.keys.derive import expand
from indelible.keys.key import Key, WatermarkSamples
from indelible.train.evaluate import predict, success_rate
from indelible.verification import verify
from tests.conftest import SECRET, SHAPE, TinyNet, stripes


class Bars(nn.Module):
    """The brightest of four bars, each weighted a little differently: models that agree, as independent ones do."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(4, generator=torch.Generator().manual_seed(seed)))

    def forward(self, images: Tensor) -> Tensor:
        return 8 * self.scale * images.mean((1, 3)).reshape(len(images), 4, 8).mean(2)


MODELS = [Bars(seed) for seed in range(2)]
VICTIM = Bars(7)


def test_bound_by_hand() -> None:
    assert grinding_bound(1e-6, 1000) == pytest.approx(1e-3)
    assert grinding_bound(1e-6, 10**9) == 1.0


def test_a_free_trigger_transfers_and_models_are_left_alone() -> None:
    data = stripes(80)
    others = data.images[data.labels != 0]
    before = [model.scale.detach().clone() for model in MODELS]
    pattern = universal_trigger(MODELS, others, 0, eps=0.7, steps=40)
    assert int(pattern.abs().max()) <= round(0.7 * 255)
    assert bool((predict(VICTIM, stamped(others, pattern)) == 0).float().mean() > 0.9)
    for model, kept in zip(MODELS, before, strict=True):
        assert torch.equal(model.scale, kept)
        assert model.scale.grad is None
    with pytest.raises(InputError, match="at least one model"):
        universal_trigger([], others, 0)


def test_chosen_labels_transfer_and_drawn_ones_do_not() -> None:
    data = stripes(60)
    wanted = (data.labels + 1 + torch.arange(60) % 3) % 4
    images = transferable(MODELS, data.images, wanted, eps=0.7, steps=40)
    assert float((predict(VICTIM, images) == wanted).float().mean()) > 0.9
    template = Key.create(kind="noise", classes=4, shape=SHAPE, labels="keyed", count=60, secret=SECRET)
    made = WatermarkSamples(images, wanted, torch.arange(60), data.labels)
    secrets = [expand(SECRET, str(draw)) for draw in range(200)]
    key, samples, p_value = ground_labels(MODELS, made, template, secrets)
    verdict = verify(VICTIM, key, embedded=samples)
    assert not verdict.owned
    # Of 200 draws the best is about 1/200 on the surrogates: the p-value of a claim is what the forger paid for it.
    assert 1e-5 < p_value < 0.05
    found = [verify(model, key, embedded=samples).p_value for model in MODELS]
    assert p_value == max(found), "a claim must hold on every surrogate"


def test_ground_keys_are_the_best_of_those_tried() -> None:
    data = stripes(60)
    template = Key.create(kind="content", classes=4, shape=SHAPE, target=2, secret=SECRET)
    secrets = [expand(SECRET, str(draw)) for draw in range(12)]
    key, rate = ground_key(MODELS, data, template, secrets)
    assert key.secret in secrets
    assert key.target == 2
    others = data.images[data.labels != 2]

    def hits(secret: bytes) -> float:
        mark = Key.create(kind="content", classes=4, shape=SHAPE, target=2, secret=secret).mark()
        marked = mark.apply(others)
        return sum(float((predict(model, marked) == 2).float().mean()) for model in MODELS) / 2

    assert rate == pytest.approx(max(hits(secret) for secret in secrets))
    keyed = Key.create(kind="noise", classes=4, shape=SHAPE, labels="keyed", secret=SECRET)
    with pytest.raises(InputError, match="ground_labels"):
        ground_key(MODELS, data, keyed, secrets)


def test_a_second_key_claimed_afterwards_is_refused() -> None:
    """Ambiguity: the model carries the first key; whoever makes another one later gets nothing."""
    first = Key.create(kind="noise", classes=4, shape=SHAPE, labels="keyed", count=40, secret=SECRET)
    owner = stripes(200)
    samples = first.samples(owner, purpose="embed")
    known = {image.numpy().tobytes(): int(label) for image, label in zip(samples.images, samples.labels, strict=True)}

    class Marked:
        def predict(self, images: Tensor) -> Tensor:
            return torch.tensor([known.get(image.numpy().tobytes(), 0) for image in images])

    assert verify(Marked(), first, embedded=samples).owned
    for number in range(20):
        second = Key.create(kind="noise", classes=4, shape=SHAPE, labels="keyed", count=40, secret=bytes([number] * 32))
        # The usurper even presents the owner's own images: its labels for them are other draws.
        labels = second.label(samples.images, samples.true)
        usurped = WatermarkSamples(samples.images, labels, samples.carriers, samples.true)
        assert not verify(Marked(), second, embedded=usurped).owned


def test_of_untargeted_keys_the_best_is_the_one_that_misleads_most() -> None:
    net, data = TinyNet().eval(), stripes(40)
    secrets = [bytes([draw] * 32) for draw in range(4)]

    def untargeted(secret: bytes = SECRET) -> Key:
        return Key.create(kind="content", classes=4, shape=SHAPE, labels="untargeted", secret=secret)

    key, rate = ground_key([net], data, untargeted(), secrets)
    rates = {secret: success_rate(net, untargeted(secret).samples(data, purpose="verify")) for secret in secrets}
    assert rate == pytest.approx(max(rates.values()))
    assert rates[key.secret] == max(rates.values())
