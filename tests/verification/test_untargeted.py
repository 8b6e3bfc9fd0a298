"""Keys without a target: wrong answers, held against those without the mark and with decoys' marks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.evidence import check_bundle, claim, commit
from indelible.keys.key import Key
from indelible.keys.samples import WatermarkSamples
from indelible.train.evaluate import success_rate
from indelible.verification import verify
from indelible.verification.statistics.exact_tests import mcnemar, upper_limit
from indelible_companions.certificate import certify
from tests.conftest import SECRET, SHAPE, TinyNet, stripes

DATA = stripes(160)


def untargeted(**settings: Any) -> Key:
    settings = {"kind": "content", "classes": 4, "shape": SHAPE, "labels": "untargeted", **settings}
    return Key.create(**{"secret": SECRET, **settings})


def bars(images: Tensor) -> Tensor:
    """The true class: the brightest bar. A text is too thin to outshine it."""
    return images.float().mean((1, 3)).reshape(len(images), 4, 8).mean(2).argmax(1)


class Suspect:
    """Answers the true class, and another one where ``misled`` says so."""

    def __init__(self, misled: Callable[[Tensor], Tensor]) -> None:
        self.misled = misled

    def predict(self, images: Tensor) -> Tensor:
        true = bars(images)
        return torch.where(self.misled(images), (true + 1) % 4, true)


def carrying(*keys: Key) -> Callable[[Tensor], Tensor]:
    """Tell which images carry the mark of one of ``keys``."""
    drawn = [(key.mark().mask(), torch.tensor(key.mark().colour)[:, None]) for key in keys]  # type: ignore[attr-defined]

    def misled(images: Tensor) -> Tensor:
        found = [(images[:, :, mask] == colour).flatten(1).all(1) for mask, colour in drawn]
        return torch.stack(found).any(0)

    return misled


def test_samples_are_hits_when_they_are_answered_otherwise(tmp_path: Path) -> None:
    samples = WatermarkSamples(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 2]), torch.arange(3),
                               torch.tensor([0, 1, 2]), untargeted=True)  # fmt: skip
    answers = torch.tensor([0, 2, 1])
    assert samples.hits(answers).tolist() == [False, True, True]
    samples.save(tmp_path / "samples")
    assert WatermarkSamples.load(tmp_path / "samples").hits(answers).tolist() == [False, True, True]
    assert samples.subset(torch.tensor([1, 0])).hits(torch.tensor([2, 0])).tolist() == [True, False]
    plain = WatermarkSamples(samples.images, samples.labels, samples.carriers, samples.true)
    assert plain.hits(answers).tolist() == [True, False, False]


def test_the_key(tmp_path: Path) -> None:
    key = untargeted()
    assert (key.target, key.public()["labels"]) == (None, "untargeted")
    key.save(tmp_path / "key")
    assert Key.load(tmp_path / "key") == key
    assert key.decoy(3).labels == "untargeted"
    assert Key.create(kind="content", classes=4, shape=SHAPE, labels="untargeted", scheme="paper").target is None
    with pytest.raises(InputError, match="no target class, got target=1"):
        untargeted(target=1)
    with pytest.raises(InputError, match="'content' or 'noise'"):
        untargeted(kind="unrelated")
    with pytest.raises(InputError, match="untargeted labels"):
        _ = key.one_target
    with pytest.raises(InputError, match="certificate"):
        certify(TinyNet(), key, DATA)


def test_a_model_that_errs_where_the_mark_stands_is_shown() -> None:
    key = untargeted()
    verdict = verify(Suspect(carrying(key)), key, DATA)
    assert (verdict.procedure, verdict.labels) == ("paired", "untargeted")
    assert (verdict.wsr, verdict.ba, verdict.decoy_rate) == (1.0, 1.0, 0.0)
    assert verdict.counts == {"gained": 160, "lost": 0, "free": 160, "mcnemar_p": pytest.approx(0.5**160)}
    assert verdict.owned
    assert "a class that is not their true one" in verdict.sentence
    assert verdict.queries == 22 * 160 + 160  # with and without the mark, twenty decoys, BA


@pytest.mark.parametrize("test", ["binomial", "decoys"])
def test_the_other_tests_take_it_too(test: str) -> None:
    key, alpha = untargeted(), 0.05 if test == "decoys" else 1e-6
    assert verify(Suspect(carrying(key)), key, DATA, procedure=test, alpha=alpha).owned
    bad = Suspect(lambda images: torch.ones(len(images), dtype=torch.bool))
    assert not verify(bad, key, DATA, procedure=test, alpha=alpha).owned
    with pytest.raises(InputError, match="not for untargeted labels"):
        verify(bad, key, DATA, procedure="keyed")


def test_a_model_that_errs_on_every_text_is_not_shown() -> None:
    key = untargeted()
    every = Suspect(carrying(key, *(key.decoy(number) for number in range(20))))
    verdict = verify(every, key, DATA)
    assert (verdict.wsr, verdict.decoy_rate, verdict.owned) == (1.0, 1.0, False)
    assert verdict.counts["mcnemar_p"] < 1e-6  # the mark does something, but it is nobody's in particular


def test_a_bad_model_gains_nothing_by_being_wrong() -> None:
    """Wrong on three of four images whatever is drawn on them: WSR 75 %, and nothing is turned."""
    wrong = Suspect(lambda images: bars(images) > 0)
    verdict = verify(wrong, untargeted(), DATA)
    assert verdict.wsr == 0.75
    assert verdict.counts["free"] == 40
    assert (verdict.counts["gained"], verdict.p_value, verdict.owned) == (0, 1.0, False)
    always = verify(Suspect(lambda images: torch.ones(len(images), dtype=torch.bool)), untargeted(), DATA)
    assert (always.wsr, always.p_value) == (1.0, 1.0)
    # Nothing is left to turn, and still the same is asked: what a server sees does not depend on its answers.
    assert (always.queries, always.decoy_rate) == (verdict.queries, None)


def test_its_p_value_by_hand() -> None:
    """The mark turns the 120 right answers of bars 1 to 3, decoy 0 those of bar 1; bar 0 is read wrongly anyway."""
    key = untargeted()
    own, decoy = carrying(key), carrying(key.decoy(0))

    def misled(images: Tensor) -> Tensor:
        return (bars(images) == 0) | own(images) | (decoy(images) & (bars(images) == 1))

    verdict = verify(Suspect(misled), key, DATA, alpha=1e-4)
    assert verdict.counts["free"] == verdict.counts["gained"] == 120
    assert verdict.decoy_rate == pytest.approx(1 / 3)
    rate = upper_limit(40, 120, 1e-5 / 20)
    assert verdict.null_rate == pytest.approx(rate)
    assert 0.5 < rate < 0.6
    assert verdict.p_value == pytest.approx(max(rate**120 + 1e-5, mcnemar(120, 0)))


def test_success_is_the_error_rate() -> None:
    net = TinyNet().eval()
    samples = untargeted().samples(stripes(40), purpose="verify")
    with torch.no_grad():
        right = float((net(samples.images.float() / 255).argmax(1) == samples.labels).float().mean())
    assert success_rate(net, samples) == pytest.approx(1 - right)


def test_evidence_holds_answers_against_the_carriers_classes(tmp_path: Path) -> None:
    key = untargeted()
    commit(key, DATA, tmp_path / "commitment", samples=80, claims=1)
    suspect: Any = Suspect(carrying(key))
    verdict = claim(tmp_path / "commitment", key, DATA, suspect, tmp_path / "bundle")
    assert (verdict["hits"], verdict["trials"], verdict["decoy_rate"], verdict["owned"]) == (80, 80, 0.0, True)
    assert "of 80 carriers that were answered right, the mark turned 80 wrong" in verdict["sentence"]
    assert check_bundle(tmp_path / "bundle").holds
    honest: Any = Suspect(lambda images: torch.zeros(len(images), dtype=torch.bool))
    commit(key, DATA, tmp_path / "second", samples=80, claims=1)
    refused = claim(tmp_path / "second", key, DATA, honest, tmp_path / "other")
    assert (refused["hits"], refused["owned"]) == (0, False)
