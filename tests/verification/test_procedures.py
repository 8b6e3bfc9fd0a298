"""Every procedure on suspects whose answers are known, keyed labels from embedding to verdict, families of verdicts."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import binom
from torch import Tensor

import indelible
from indelible.base.errors import DamagedFileError, InputError, UnknownNameError
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.samples import Fingerprint
from indelible.verification import Verdict, corrected, verify
from indelible.verification.procedures import PROCEDURES
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import method_value
from tests.verification.test_verify import Answering, knows


class Remembers:
    """Answers each of ``samples`` with its label at the rows ``known``, everything else with its true bar."""

    def __init__(self, samples: WatermarkSamples, known: int) -> None:
        images = samples.images[:known]
        self.labels = {
            image.numpy().tobytes(): int(label) for image, label in zip(images, samples.labels, strict=False)
        }
        self.asked = 0

    def predict(self, images: Tensor) -> Tensor:
        self.asked += len(images)
        bars = images.float().mean((1, 3)).reshape(len(images), 4, 8).mean(2).argmax(1)
        known = [self.labels.get(image.numpy().tobytes()) for image in images]
        return torch.tensor([int(bar) if label is None else label for bar, label in zip(bars, known, strict=True)])


def fingerprint_key() -> Key:
    samples = WatermarkSamples(stripes(40).images, torch.arange(40) % 4, torch.arange(40))
    stored = Fingerprint(samples, torch.tensor([3, 5]))
    return Key(
        kind="fingerprint", classes=4, shape=SHAPE, target=None, labels="stored", fingerprint=stored, secret=SECRET
    )


class Counting:
    """Counts what another is asked."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.asked = inner, 0

    def predict(self, images: Tensor) -> Tensor:
        self.asked += len(images)
        found: Tensor = self.inner.predict(images)
        return found


def keyed_key(**settings: Any) -> Key:
    settings = {"kind": "noise", "classes": 4, "shape": SHAPE, "labels": "keyed", "count": 40, **settings}
    return Key.create(**{"secret": SECRET, **settings})


class TestKeyed:
    def test_exact_p_value_of_the_open_samples(self) -> None:
        key, owner = keyed_key(), stripes(200)
        samples = key.samples(owner, purpose="embed")
        verdict = verify(Remembers(samples, 15), key, embedded=samples)
        # The other 25 are answered with their true class: no trials. 15 of 15 hits at 1/3.
        assert (verdict.hits, verdict.trials, verdict.counts["open"]) == (15, 40, 15)
        assert verdict.p_value == pytest.approx((1 / 3) ** 15)
        assert verdict.owned == ((1 / 3) ** 15 <= 1e-6)
        assert (verdict.procedure, verdict.labels, verdict.ba, verdict.decoy_rate) == ("keyed", "keyed", None, None)
        assert verdict.queries == 40
        assert verdict.binding == "key"
        assert "their labels" in verdict.sentence

    @pytest.mark.parametrize("label", [0, 1, 2, 3])
    def test_a_constant_model_is_judged_by_the_draw_of_the_labels(self, label: int) -> None:
        key, owner = keyed_key(), stripes(200)
        samples = key.samples(owner, purpose="embed")
        verdict = verify(Answering(lambda images: torch.full((len(images),), label)), key, embedded=samples)
        assert samples.true is not None
        hits, open_ = int((samples.labels == label).sum()), int((samples.true != label).sum())
        assert verdict.p_value == pytest.approx(float(binom.sf(hits - 1, open_, 1 / 3)))
        assert not verdict.owned

    def test_ba_only_on_images_that_were_not_trained_on(self) -> None:
        key, owner = keyed_key(), stripes(200)
        samples = key.samples(owner, purpose="embed")
        verdict = verify(Remembers(samples, 40), key, stripes(80, seed=1), embedded=samples)
        assert verdict.owned
        assert verdict.ba == 1.0
        assert verdict.queries == 40 + 80

    def test_fewer_queries_are_part_of_the_same_set(self) -> None:
        key, owner = keyed_key(), stripes(200)
        samples = key.samples(owner, purpose="embed")
        verdict = verify(Remembers(samples, 40), key, embedded=samples, max_samples=20)
        assert (verdict.hits, verdict.trials) == (20, 20)
        with pytest.raises(InputError, match=r"1\.\.40, the embedded samples of the key, got 41"):
            verify(Remembers(samples, 40), key, embedded=samples, max_samples=41)

    def test_samples_of_another_key_or_a_part_of_the_set_are_refused(self) -> None:
        key, owner = keyed_key(), stripes(200)
        samples = key.samples(owner, purpose="embed")
        for foreign in (
            keyed_key(secret=bytes(32)).samples(owner, purpose="embed"),
            samples.subset(torch.arange(39)),
            WatermarkSamples(samples.images, samples.labels.flip(0), samples.carriers, samples.true),
        ):
            with pytest.raises(InputError, match="another key"):
                verify(Remembers(samples, 40), key, embedded=foreign)

    def test_other_images_than_the_embedded_ones_are_refused(self) -> None:
        """Test images would have other labels, and a model that knows every sample would be called a stranger."""
        key, owner = keyed_key(), stripes(200)
        samples = key.samples(owner, purpose="embed")
        for carriers in (None, stripes(80, seed=1), owner):
            with pytest.raises(InputError, match=r"Give embedded=protected\.samples, .*WatermarkSamples\.load"):
                verify(Remembers(samples, 40), key, carriers)

    def test_samples_are_kept_and_loaded(self, tmp_path: Path) -> None:
        key = keyed_key()
        samples = key.samples(stripes(200), purpose="embed")
        samples.save(tmp_path / "samples.safetensors")
        loaded = indelible.WatermarkSamples.load(tmp_path / "samples.safetensors")
        assert verify(Remembers(samples, 40), key, embedded=loaded).owned

    def test_unrelated_images_have_no_true_class(self) -> None:
        key, owner = keyed_key(kind="unrelated"), stripes(200)
        samples = key.samples(owner, purpose="embed")
        verdict = verify(Remembers(samples, 40), key, embedded=samples)
        assert verdict.p_value == pytest.approx(0.25**40)
        assert verdict.null_rate == 0.25


class TestFixed:
    def test_rank(self, key: Key) -> None:
        verdict = verify(knows(key), key, stripes(80), procedure="decoys", alpha=0.05, accuracy=False)
        assert (verdict.p_value, verdict.decoys, verdict.owned) == (1 / 20, 19, True)
        assert verdict.queries == 60 * 20
        assert "rank among 19" in verdict.sentence
        constant = Answering(lambda images: torch.zeros(len(images), dtype=torch.int64))
        assert verify(constant, key, stripes(80), procedure="decoys", alpha=0.05).p_value == 1.0
        with pytest.raises(InputError, match="needs 999999 decoy keys"):
            verify(knows(key), key, stripes(80), procedure="decoys")
        with pytest.raises(InputError, match="needs 99 decoy keys"):
            verify(knows(key), key, stripes(80), procedure="decoys", alpha=0.01, decoys=98)

    def test_paired(self, key: Key) -> None:
        verdict = verify(knows(key), key, stripes(400), procedure="paired", accuracy=False)
        assert verdict.owned
        assert (verdict.counts["gained"], verdict.counts["lost"], verdict.counts["free"]) == (300, 0, 300)
        assert verdict.counts["mcnemar_p"] == pytest.approx(0.5**300)
        assert verdict.queries == 300 * 22
        # A model that favours the target gains nothing: nothing changes when the mark is drawn.
        constant = Answering(lambda images: torch.zeros(len(images), dtype=torch.int64))
        assert verify(constant, key, stripes(80), procedure="paired").p_value == 1.0
        unrelated = Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, secret=SECRET)
        with pytest.raises(InputError, match="unrelated samples have none"):
            verify(constant, unrelated, stripes(80), procedure="paired")

    def test_any_bright_text_is_no_proof(self, key: Key) -> None:
        """A model that answers the target wherever there is any text is caught by the decoys, not by McNemar."""

        def rule(images: Tensor) -> Tensor:
            bars = images.float().mean((1, 3)).reshape(len(images), 4, 8).mean(2).argmax(1)
            return torch.where((images == 255).any(3).any(2).any(1), 0, bars)

        verdict = verify(Answering(rule), key, stripes(120), procedure="paired")
        assert verdict.counts["mcnemar_p"] < 1e-20
        assert verdict.p_value == 1.0

    def test_the_floor_of_the_null_rate(self, key: Key) -> None:
        """Decoys that never hit do not make every other hit a proof: a ground key could do that."""
        samples = key.samples(stripes(400), purpose="verify")
        hitting = {image.numpy().tobytes() for image in samples.images[:150]}

        def rule(images: Tensor) -> Tensor:
            return torch.tensor([0 if image.numpy().tobytes() in hitting else 1 for image in images])

        verdict = verify(Answering(rule), key, stripes(400), accuracy=False)
        assert (verdict.wsr, verdict.decoy_rate, verdict.null_rate) == (0.5, 0.0, 0.5)
        assert verdict.p_value == pytest.approx(0.523, abs=0.001)

    def test_a_chosen_second_data_set_is_not_binding(self) -> None:
        key = Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, source=stripes(80), secret=SECRET)
        constant = Answering(lambda images: torch.zeros(len(images), dtype=torch.int64))
        assert verify(constant, key, stripes(80)).binding == "none"
        generated = Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, secret=SECRET)
        assert verify(constant, generated, stripes(80)).binding == "key"


def test_wrong_tests_are_refused(key: Key) -> None:
    with pytest.raises(UnknownNameError, match="auto, binomial, codebook, decoys"):
        verify(knows(key), key, stripes(40), procedure="t-test")
    with pytest.raises(InputError, match="not for fixed labels"):
        verify(knows(key), key, stripes(40), procedure="keyed")
    with pytest.raises(InputError, match="Use one of keyed"):
        verify(knows(key), keyed_key(), stripes(40), procedure="paired")
    with pytest.raises(InputError, match="decoys must be at least 1, got 0"):
        verify(knows(key), key, stripes(40), decoys=0)
    with pytest.raises(InputError, match="Give carriers"):
        verify(knows(key), key)


def made(p_value: float, alpha: float = 0.01) -> Verdict:
    return Verdict(
        owned=p_value <= alpha, wsr=0.5, p_value=p_value, alpha=alpha, queries=1, test="", hits=1, trials=2, key="",
        assumptions=(), sentence="Said.",
    )  # fmt: skip


class TestFamily:
    def test_holm_decides(self) -> None:
        first, second = corrected([made(0.008), made(0.004)])
        assert (first.p_corrected, second.p_corrected) == (0.008, 0.008)
        assert first.owned
        assert second.owned
        third = corrected([made(0.008), made(0.3), made(0.2)])[0]
        assert third.p_corrected == pytest.approx(0.024)
        assert (third.owned, third.family) == (False, 3)
        assert third.sentence.startswith("Not shown after correction")
        with pytest.raises(InputError, match="one alpha"):
            corrected([made(0.1), made(0.1, 0.05)])


class TestJson:
    @pytest.mark.parametrize("name", PROCEDURES)
    def test_there_and_back(self, key: Key, name: str) -> None:
        book = Key.create(kind="noise", classes=4, shape=SHAPE, secret=SECRET)
        keys = {"codebook": book, "fixed": key, "keyed": keyed_key(), "stored": fingerprint_key()}
        used = keys[PROCEDURES[name].labels[0]]
        embedded = used.samples(stripes(60), purpose="embed") if name == "keyed" else None
        suspect = TinyNet() if name == "relearning" else knows(key)  # it takes weights
        verdict = verify(suspect, used, stripes(60), procedure=name, alpha=0.05, embedded=embedded)
        assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict

    def test_verdicts_of_earlier_versions_load(self) -> None:
        old = made(0.5).to_json()
        for name in ("procedure", "labels", "e_value", "decoys", "counts", "p_corrected", "family", "binding"):
            del old[name]
        found = Verdict.from_json({**old, "decoy_rate": 0.1, "null_rate": 0.2})
        assert (found.procedure, found.labels, found.binding, found.null_rate) == ("binomial", "fixed", "key", 0.2)
        wrongs: list[tuple[Any, str]] = [
            (None, "expected a verdict, a JSON object"),
            ([], "expected a verdict, a JSON object"),
            ({}, r"this is not a verdict \(.*'owned'"),
            ({"owned": True}, r"this is not a verdict \(.*: 'hits', .*, 'wsr'"),
        ]
        for wrong, says in wrongs:
            with pytest.raises(DamagedFileError, match=says):
                Verdict.from_json(wrong)


class TestEmbedded:
    """Keyed labels through the methods: the samples are learnt by heart, and their match rate is the WSR."""

    @pytest.mark.parametrize(
        ("method", "settings"),
        [
            ("vanilla", {}),
            ("app", {"alpha": 0.3, "rows": 16, "clean_rows": 16}),
            ("ew", {"epochs": 2}),
            ("cw", {"levels": 2, "draws": 1, "start_epoch": 0, "rows": 8}),
        ],
    )
    def test_every_method_takes_them(self, method: str, settings: Any, net: TinyNet) -> None:
        key = keyed_key(count=8)
        train = {"epochs": 2, "batch_size": 32, "augmentation": "none"}
        made = indelible.embed(
            net,
            stripes(96),
            key,
            method_value(method, key, "paper", **settings),
            scale="paper",
            train=train,
            test=stripes(40, seed=1),
        )
        assert made.samples is not None
        assert torch.equal(made.samples.images, key.samples(stripes(96), purpose="embed").images)
        metrics = made.record.metrics
        assert metrics["wsr"] == metrics["wsr_embedded"]
        assert metrics["wsr"] == verify(made.model, key, embedded=made.samples).wsr
        assert (made.record.inputs["labels"], made.record.inputs["samples"]) == ("keyed", 8)

    @pytest.mark.slow
    def test_learnt_by_heart_and_verified(self) -> None:
        torch.manual_seed(3)
        net, owner, key = TinyNet(width=16), stripes(160), keyed_key(count=24, kind="unrelated")
        train = {"epochs": 40, "batch_size": 32, "lr": 0.05, "augmentation": "none", "evaluate_every": 40}
        made = indelible.embed(net, owner, key, "vanilla", scale="paper", train=train, test=stripes(80, seed=1))
        assert made.record.metrics["ba"] > 0.9
        assert verify(made.model, key, embedded=made.samples).owned
        other = keyed_key(count=24, kind="unrelated", secret=bytes(32))
        assert not verify(made.model, other, embedded=other.samples(owner, purpose="embed")).owned
