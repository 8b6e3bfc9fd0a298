"""CAE: score and loss by hand, queries within their ball, and a fingerprint that tells copies from strangers."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import beta
from torch import Tensor, nn

import indelible
from indelible.base.errors import DamagedFileError, InputError
from indelible.embedding import Embedded
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.samples import Fingerprint
from indelible.train import processes
from indelible.train.objective import Step
from indelible_companions.embedding.cae import ConferrableExamples, Imitation, _kept, cae_loss, conferrability, search
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.values import attack_value, key_for, method_value

SMALL: dict[str, Any] = {
    "surrogates": 2, "references": 2, "held": 2, "count": 40, "candidates": 100, "steps": 20, "eps": 0.1, "lr": 0.02,
    "threshold": 0.9,
}  # fmt: skip


class TestScore:
    def test_conferrability_by_hand(self) -> None:
        labels = torch.tensor([1, 1, 2, 0])
        surrogates = torch.tensor([[1, 1, 2, 3], [1, 0, 2, 3]])
        references = torch.tensor([[0, 0, 2, 0], [3, 1, 2, 0], [0, 0, 0, 1], [0, 0, 1, 2]])
        # Surrogates agree with the label in 1, 1/2, 1, 0; references in 0, 1/4, 1/2, 1/2.
        assert conferrability(surrogates, references, labels).tolist() == [1.0, 0.375, 0.5, 0.0]

    def test_loss_by_hand(self) -> None:
        clean, source = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.25, 0.5, 0.25]])
        surrogate, reference = torch.tensor([[0.25, 0.5, 0.25]]), torch.tensor([[0.5, 0.5, 0.0]])
        # E = (1/8, 1/4, 1/4), of which the first is the class of M(x) and does not count: -log 1/4 = 2 log 2.
        # H(M(x), M(x')) = -log 1/4 = 2 log 2.  H(M(x'), Surr(x')) = 1/2 log 4 + 1/2 log 2 = 3/2 log 2.
        bit = math.log(2)
        assert cae_loss(clean, source, surrogate, reference).tolist() == pytest.approx([1.5 * bit])
        weighted = cae_loss(clean, source, surrogate, reference, (1.0, 2.0, 4.0))
        assert weighted.tolist() == pytest.approx([2 * bit - 4 * bit + 6 * bit])
        # Where only the references are fooled, nothing is conferred: the query must leave the class of M(x).
        fooled = cae_loss(clean, clean, clean, torch.tensor([[0.0, 1.0, 0.0]]), (1.0, 0.0, 0.0))
        assert float(fooled) > 60

    def test_models_are_dropped_but_never_all(self) -> None:
        models: list[nn.Module] = [nn.Identity() for _ in range(4)]
        random = torch.Generator().manual_seed(0)
        sizes = [len(_kept(models, 0.5, random)) for _ in range(200)]
        assert set(sizes) == {1, 2, 3, 4}
        assert len(_kept(models, 0.0, random)) == 4


def test_queries_stay_in_their_ball_and_models_as_they_are() -> None:
    torch.manual_seed(0)
    models = [TinyNet().eval() for _ in range(3)]
    before = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    images = stripes(12).images
    settings = ConferrableExamples(steps=5, eps=0.025, lr=0.02)
    made = search(models[0], models[1:2], models[2:], images, settings)
    change = (made.to(torch.int16) - images.to(torch.int16)).abs()
    assert 0 < int(change.max()) <= 0.025 * 255
    for model, kept in zip(models, before, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
        assert all(weight.grad is None for weight in model.parameters())
    again = search(models[0], models[1:2], models[2:], images, settings)
    assert torch.equal(made, again), "the same seed, the same bits"


def test_a_surrogate_learns_the_sources_answers(net: TinyNet) -> None:
    class Always(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.eye(4)[torch.full((len(images),), 2)]

    images, seen = torch.rand(6, *SHAPE), list[Tensor]()
    step = Step(model=net, images=images, labels=torch.zeros(6, dtype=torch.int64), number=0, epoch=0,
                backward=seen.append)  # fmt: skip
    net.eval()
    loss = Imitation(Always()).backward(step)
    assert torch.equal(loss, torch.nn.functional.cross_entropy(net(images), torch.full((6,), 2)).detach())
    assert len(seen) == 1


@pytest.fixture(scope="module")
def made() -> tuple[Embedded, nn.Module]:
    """A fingerprint of a small network on real images, and the network it was read off."""
    torch.set_num_threads(1)
    train, _ = indelible.load("fashion-mini")
    torch.manual_seed(3)
    net = TinyNet(classes=10, channels=1)
    how = {"epochs": 6, "batch_size": 32, "lr": 0.1, "augmentation": "none", "schedule": "one-cycle"}
    key = Key.create(kind="content", classes=10, shape=train.shape, target=0, secret=SECRET)
    from indelible.base.progress import silenced
    from indelible.train import TrainSettings
    from indelible.train.job import train_unmarked

    with silenced():
        source = train_unmarked(net, train.subset(torch.arange(600)), TrainSettings().but(**how), device="cpu").model
        embedded = indelible.embed(
            source,
            train.subset(torch.arange(600)),
            key,
            method_value("cae", key, "paper", start="trained", **SMALL),
            scale="paper",
            start="trained",
            train=how,
            device="cpu",
        )
    return embedded, source


class TestFingerprint:
    def test_the_model_is_untouched_to_the_bit(self, made: tuple[Embedded, nn.Module]) -> None:
        embedded, source = made
        for first, second in zip(source.state_dict().items(), embedded.model.state_dict().items(), strict=True):
            assert first[0] == second[0]
            assert torch.equal(first[1], second[1])
        assert "wsr_before" not in embedded.record.metrics
        phases = {row["phase"] for row in embedded.history}
        assert phases == {f"{kind}-{number}" for kind in ("surrogate", "reference", "held") for number in (0, 1)}

    def test_it_tells_copies_from_strangers(self, made: tuple[Embedded, nn.Module]) -> None:
        embedded, source = made
        train, _ = indelible.load("fashion-mini")
        rest = train.subset(torch.arange(600, 1000))
        own = indelible.verify(source, embedded.key)
        assert own.wsr == 1.0
        assert own.queries == len(embedded.key.questions(None, None))
        tuned = indelible.attack(source, rest, attack_value("ft", epochs=2, lr=0.001), device="cpu").model
        stranger = embedded.record.metrics["reference_rates"]
        assert indelible.verify(tuned, embedded.key).wsr > max(stranger) + 0.2
        assert own.null_rate is not None
        assert own.null_rate >= max(stranger)

    def test_the_verdict_says_what_it_rests_on(self, made: tuple[Embedded, nn.Module]) -> None:
        embedded, source = made
        verdict = indelible.verify(source, embedded.key, alpha=0.01)
        assert verdict.procedure == "references"
        assert verdict.counts["references"] == 2
        assert verdict.binding == "none"
        assert any("honest" in one for one in verdict.assumptions)
        # Every query is a hit, at the highest rate that two references allow; a tenth of alpha pays for that limit.
        # How many of the 10 wanted queries are found depends on how the machine rounds.
        asked, fingerprint = embedded.key.questions(None, None), embedded.key.fingerprint
        found = len(asked.images)
        assert 8 <= found <= 10
        assert torch.equal(source.eval()(asked.images.float() / 255).argmax(1), asked.labels)
        assert (verdict.hits, verdict.trials) == (found, found)
        assert fingerprint is not None
        limits = [1.0 if hits == n else beta.ppf(1 - 0.001 / 2, hits + 1, n - hits) for hits, n in fingerprint.nulls]
        assert len(limits) == 2
        assert verdict.null_rate == pytest.approx(max(0.5, *limits))
        assert verdict.p_value == pytest.approx(min(1.0, max(0.5, *limits) ** found + 0.001))
        assert not verdict.owned
        assert verdict.sentence.endswith("That does not prove that it is independent.")
        with pytest.raises(InputError, match=r"not for stored labels.*references"):
            indelible.verify(source, embedded.key, procedure="keyed")

    def test_it_is_kept_with_the_key(self, made: tuple[Embedded, nn.Module], tmp_path: Path) -> None:
        key = made[0].key
        begun = key_for(key, "cae")
        begun.save(tmp_path / "key")
        key.save(tmp_path / "key")  # takes the place of the key that it was begun with
        read = Key.load(tmp_path / "key")
        assert read == key
        assert torch.equal(read.questions(None, None).images, key.questions(None, None).images)
        assert key_for(read, "cae") == begun
        with pytest.raises(InputError, match="another key"):
            replace(begun, secret=bytes(32)).save(tmp_path / "key")
        (tmp_path / "key" / "fingerprint.safetensors").write_bytes(b"gone")
        with pytest.raises(DamagedFileError, match=r"fingerprint\.safetensors is not a whole safetensors file"):
            Key.load(tmp_path / "key")

    def test_what_only_marks_have_is_refused(self, made: tuple[Embedded, nn.Module], tmp_path: Path) -> None:
        from indelible.evidence import commit

        key, data = made[0].key, indelible.load("fashion-mini")[1]
        with pytest.raises(InputError, match="stored, not drawn"):
            key.samples(data, purpose="verify")
        with pytest.raises(InputError, match="labels are stored"):
            key.label(data.gather(torch.arange(2)).images, None)
        with pytest.raises(InputError, match="one target class, but the key has stored labels"):
            _ = key.one_target
        with pytest.raises(InputError, match="forgeable"):
            commit(key, data, tmp_path)
        with pytest.raises(InputError, match="method='cae'"):
            Key.create(kind="fingerprint", classes=4, shape=SHAPE, target=0)


def test_verdict_by_hand() -> None:
    """30 of 30 hits at a null of one half: 2^-30, and a tenth of alpha for the limit of the references."""
    samples = WatermarkSamples(stripes(30).images, torch.arange(30) % 4, torch.arange(30), (torch.arange(30) + 1) % 4)
    begun = key_for(Key.create(classes=4, shape=SHAPE, target=0, secret=SECRET), "cae")
    key = replace(
        begun, kind="fingerprint", labels="stored", target=None, fingerprint=Fingerprint(samples, torch.tensor([0, 1]))
    )

    class Knows:
        def predict(self, images: Tensor) -> Tensor:
            return samples.labels[: len(images)]

    verdict = indelible.verify(Knows(), key)
    assert verdict.p_value == pytest.approx(2.0**-30 + 1e-7)
    assert verdict.null_rate == 0.5
    assert verdict.counts["reference_rate"] == pytest.approx(1 / 30)
    assert verdict.owned
    assert "forgeable" in verdict.sentence
    likely = replace(key, fingerprint=Fingerprint(samples, torch.tensor([0, 29])))
    assert not indelible.verify(Knows(), likely).owned, "a reference that answers alike takes the claim away"
    with pytest.raises(InputError, match=r"0\.\.30"):
        Fingerprint(samples, torch.tensor([31]))
    with pytest.raises(InputError, match="at least one reference"):
        Fingerprint(samples, torch.tensor([], dtype=torch.int64))


def test_refusals(net: TinyNet, key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least 1"):
        ConferrableExamples(held=0)
    with pytest.raises(InputError, match="threshold"):
        ConferrableExamples(threshold=2.0)
    small = {**SMALL, "steps": 1, "eps": 0.004, "candidates": 8}
    with pytest.raises(InputError, match=r"larger eps|correctly"):
        indelible.embed(
            net,
            stripes(64),
            key,
            method_value("cae", key, "paper", **small),
            scale="paper",
            train={"epochs": 1, "batch_size": 32},
            device="cpu",
        )
    monkeypatch.setitem(processes._state, "group", processes.Group(world=2, devices=2))
    with pytest.raises(InputError, match="one process"):
        indelible.embed(net, stripes(64), key, "cae", device="cpu")
