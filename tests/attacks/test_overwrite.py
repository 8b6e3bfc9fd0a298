"""Overwriting: a key from the seed, marks on some images, a mark that is learnt, fine-tuning as FT does it."""

from typing import Any

import pytest
import torch

from indelible.attacks import FineTuning, Overwriting, attack
from indelible.attacks import overwrite as module
from indelible.attacks.overwrite import own_key
from indelible.base.errors import InputError
from indelible.data.images import Data, ImageData
from indelible.embedding.mixing import mix
from indelible.keys.key import Key
from indelible.train.evaluate import success_rate
from tests.conftest import SHAPE, TinyNet
from tests.values import attack_value


def test_settings_are_those_of_fine_tuning() -> None:
    value, plain = Overwriting(), FineTuning()
    assert (value.kind, value.fraction) == ("content", 0.05)
    assert (value.epochs, value.lr, value.every, value.batch_size) == (30, 0.05, 5, 128)
    assert value.cpu_settings == plain.cpu_settings
    assert value.why_one_process() == ""
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise
    with pytest.raises(InputError, match="unknown kind 'plain': choose one of content, noise, unrelated"):
        Overwriting(kind="plain")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"fraction must lie in \(0, 1\), got 0"):
        Overwriting(fraction=0.0)


def test_the_key_is_a_function_of_the_seed() -> None:
    first, again, other = (own_key(seed, "content", 4, SHAPE) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert len({own_key(seed, "content", 4, SHAPE).target for seed in range(20)}) == 4
    assert len(set(first.secret)) > 20  # drawn, not constant


@pytest.mark.parametrize("kind", ["content", "noise", "unrelated"])
def test_marked_images_replace_some_of_the_attackers(
    net: TinyNet, data: ImageData, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed: list[Data] = []

    def watched(images: Data, key: Key, fraction: float) -> Any:
        found = mix(images, key, fraction)
        mixed.append(found[0])
        return found

    monkeypatch.setattr(module, "mix", watched)
    attacked = attack(net, data, attack_value("overwrite", kind=kind, epochs=1, fraction=0.1), device="cpu", seed=3)
    everything = mixed[0].gather(torch.arange(len(data)))
    changed = (everything.images != data.images).flatten(1).any(1)
    key = own_key(3, kind, 4, SHAPE)
    assert int(changed.sum()) == attacked.record.metrics["own_marks"] == 32
    assert set(everything.labels[changed].tolist()) == {key.target}
    assert key.target not in data.labels[changed].tolist()
    assert attacked.record.metrics["own_target"] == key.target


def test_the_thiefs_mark_takes(net: TinyNet, data: ImageData, test_data: ImageData) -> None:
    attacked = attack(
        net,
        data,
        attack_value("overwrite", epochs=12, batch_size=32, fraction=0.2, protocol="paper", every=4),
        device="cpu",
    )
    assert attacked.record.metrics["own_rate"] > 0.9
    fresh = own_key(0, "content", 4, SHAPE).samples(test_data, purpose="verify")
    assert success_rate(attacked.model, fresh) > 0.8
    assert success_rate(net, fresh) < 0.5
    assert attacked.record.images == 12 * 320 + 64
