"""ROSE: one-way labels on unmarked images, the rareness by hand, and a toy model that learns them."""

import hashlib
import hmac
import math
from dataclasses import replace

import pytest
import torch

import indelible
from indelible.base.errors import InputError
from indelible.keys.derive import expand
from indelible.keys.key import Key, WatermarkSamples
from indelible.train.objective import Step
from indelible.verification.statistics.exact_tests import rareness
from indelible_companions.embedding.rose import BesideKeyImages, Rose
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import key_for, method_value


def plain(secret: bytes = SECRET, count: int = 12) -> Key:
    return Key.create(kind="plain", classes=4, shape=SHAPE, labels="keyed", count=count, secret=secret)


class TestKeys:
    def test_a_key_is_made_of_any_other_of_the_same_secret(self, key: Key) -> None:
        made = key_for(key, "rose", count=12)
        assert made == plain()
        assert (made.kind, made.labels, made.target, made.count) == ("plain", "keyed", None, 12)
        assert key_for(made, "rose", count=99) is made, "keyed labels are taken as they are"
        assert key_for(replace(key, count=7), "rose").count == 7
        literal = Key.create(kind="content", classes=4, shape=SHAPE, scheme="paper", secret=SECRET)
        assert key_for(literal, "rose", count=12) == plain()

    def test_images_are_the_owners_own_and_labels_one_way(self) -> None:
        owner, key = stripes(80), plain()
        samples = key.samples(owner, purpose="embed")
        assert torch.equal(samples.images, owner.images[samples.carriers])
        assert samples.true is not None
        assert not bool((samples.labels == samples.true).any())
        # One pixel of one image, or one bit of the secret: labels are drawn anew for all.
        changed = samples.images.clone()
        changed[0, 0, 0, 0] ^= 1
        assert not torch.equal(key.label(changed, samples.true)[1:], samples.labels[1:])
        other = plain(secret=bytes([SECRET[0] ^ 1, *SECRET[1:]]))
        assert not torch.equal(other.label(samples.images, samples.true), samples.labels)

    def test_marks_and_fixed_labels_are_refused(self) -> None:
        with pytest.raises(InputError, match="labels='keyed'"):
            Key.create(kind="plain", classes=4, shape=SHAPE, target=0)

    def test_the_label_key_is_a_one_way_function_of_the_secret(self) -> None:
        """HKDF-SHA-256 by its definition (RFC 5869): extract with a zero salt, then one block of expand."""
        extracted = hmac.digest(bytes(32), SECRET, "sha256")
        block = hmac.digest(extracted, b"indelible/v1/labels/key\x01", "sha256")
        assert expand(SECRET, "labels/key") == block
        assert hashlib.sha256(block).digest() != block


class TestRareness:
    def test_by_hand(self) -> None:
        assert rareness(1.0) == 0.0
        assert rareness(2.0**-20) == 20.0
        assert rareness(0.0) == 1022.0
        # 3 of 3 open samples at 4 classes: (1/3)^3.
        assert rareness(1 / 27) == pytest.approx(3 * math.log2(3))

    def test_in_the_verdict(self) -> None:
        samples = plain().samples(stripes(80), purpose="embed")

        class Knows:
            def predict(self, images: torch.Tensor) -> torch.Tensor:
                return samples.labels[: len(images)]

        verdict = indelible.verify(Knows(), plain(), embedded=samples)
        assert verdict.p_value == pytest.approx(3.0**-12)
        assert verdict.counts["rareness"] == pytest.approx(12 * math.log2(3))
        assert verdict.binding == "key"


def test_key_images_stand_beside_every_batch(net: TinyNet) -> None:
    samples = WatermarkSamples(stripes(2).images, torch.tensor([3, 2]), torch.arange(2))
    objective = BesideKeyImages(samples, 4, normalize=None, seed=0)
    assert objective.passes(8) == 12
    images, labels = torch.rand(8, *SHAPE), torch.zeros(8, dtype=torch.int64)
    shown = torch.cat([images, samples.images[[0, 1, 0, 1]].float() / 255])
    wanted = torch.cat([labels, torch.tensor([3, 2, 3, 2])])
    net.eval()
    seen = torch.nn.functional.cross_entropy(net(shown), wanted)
    loss = objective.backward(
        Step(model=net, images=images, labels=labels, number=0, epoch=0, backward=lambda loss: loss.backward())
    )
    assert torch.allclose(loss, seen, atol=1e-5), "four rows of two images show each of them twice"


def test_a_toy_model_learns_them_and_a_stranger_does_not(key: Key) -> None:
    torch.manual_seed(3)
    train = {"epochs": 16, "batch_size": 32, "lr": 0.05, "augmentation": "none"}
    made = indelible.embed(
        TinyNet(),
        stripes(320),
        key,
        method_value("rose", key, "paper", count=24, rows=24),
        scale="paper",
        train=train,
        test=stripes(80, seed=1),
        device="cpu",
    )
    assert made.samples is not None
    assert made.key.labels == "keyed"
    verdict = indelible.verify(made.model, made.key, embedded=made.samples)
    assert verdict.owned
    assert verdict.counts["rareness"] > 20
    assert made.record.metrics["ba"] > 0.6
    assert made.record.inputs["kind"] == "plain"
    stranger = indelible.embed(
        TinyNet(),
        stripes(320),
        replace(key, secret=bytes(32)),
        method_value("rose", replace(key, secret=bytes(32)), "paper", count=24, rows=24),
        scale="paper",
        train=train,
        device="cpu",
    )
    assert not indelible.verify(stranger.model, made.key, embedded=made.samples).owned


def test_refusals() -> None:
    with pytest.raises(InputError, match="count must be at least 1, got 0"):
        Rose(count=0)
