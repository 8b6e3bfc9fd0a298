"""Subjects with a codebook: which samples WSR is measured with, and what needs one class."""

import pytest
import torch

from indelible.analyze.batchnorm_distances import BatchNormSettings, batchnorm
from indelible.analyze.marked_model import MarkedModel, Probe
from indelible.base.errors import InputError
from indelible.keys.key import Key
from indelible.train.evaluate import success_rate
from indelible_companions.analyze.dynamics import DynamicsSettings, dynamics
from indelible_companions.analyze.tsne import TsneSettings, tsne
from tests.conftest import SECRET, SHAPE, TinyNet, stripes


def _subject(kind: str = "content", labels: str | None = None) -> MarkedModel:
    torch.manual_seed(3)
    more = {"marks": 12} if labels is None else {"labels": labels}
    key = Key.create(kind=kind, classes=4, shape=SHAPE, secret=SECRET, **more)
    return MarkedModel.of(
        TinyNet(), key, test=stripes(120, seed=1), attacker=stripes(96, seed=2), owner=stripes(160), label="book"
    )


def test_samples_of_a_codebook_are_the_ones_that_count() -> None:
    subject = _subject()
    found = subject.marked(100)  # 8 of each of 12 marks
    whole = subject.key.samples(subject.test, purpose="verify", count=96)
    assert whole.true is not None
    assert found.true is not None
    assert found.marks is not None
    assert len(found) == int((whole.true != whole.labels).sum()) < 96
    assert bool((found.true != found.labels).all())
    assert set(found.marks.tolist()) == set(range(12))
    owned = subject.key.samples(subject.owner, purpose="embed", count=24)
    assert torch.equal(subject.embedded(24).images, owned.images[owned.counted])  # on the owner's images
    assert len(subject.marked(3)) <= 12  # never fewer than one image of a mark
    assert len(_subject("unrelated").marked(100)) == 96  # belong to no class: all count


def test_the_probe_gives_the_wsr_of_the_verdicts_samples() -> None:
    subject = _subject()
    rates = Probe(subject, images=20, marked=96, statistics=16).rates(subject.copy())
    whole = subject.key.samples(subject.test, purpose="verify", count=96)
    assert rates.wsr == pytest.approx(success_rate(subject.model, whole))


def test_analyses_that_need_no_class_work_with_a_codebook() -> None:
    subject = _subject()
    layers = batchnorm([subject], BatchNormSettings(images=48, layer=1)).models[0].layers
    assert [layer.channels for layer in layers] == [8, 16]
    settings = DynamicsSettings(settings={"epochs": 1, "batch_size": 32}, every=3, images=20, carriers=40)
    track = dynamics([subject], settings, device="cpu").tracks[0]
    assert not track.moments[0].owned  # nothing was embedded
    assert "p = " in dynamics([subject], settings, device="cpu").sentences()[0]


def test_tsne_refuses_a_codebook_in_one_line_that_names_the_way() -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(InputError, match=r"codebook of 12 marks.*indelible embed --target 0") as raised:
        tsne([_subject()], TsneSettings())
    assert "\n" not in str(raised.value)


def test_keyed_labels_are_still_refused() -> None:
    with pytest.raises(InputError, match="keyed labels"):
        _subject(labels="keyed")
