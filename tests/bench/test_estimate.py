"""Estimates: passes counted by hand, and against what finished runs counted themselves."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from indelible.attacks import ATTACKS
from indelible.attacks.preprocess import InputPreprocessing
from indelible.bench.cells import BenchCell, plan_cells
from indelible.bench.estimate import DataSize, estimate, evaluation_passes, plain_rate, size_of, training_passes
from indelible.bench.preset import load_preset, preset_names
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from indelible.train import TrainSettings
from indelible_companions.embedding.cae import ConferrableExamples
from indelible_companions.embedding.rose import Rose
from tests.bench.micro import OTHER_ATTACKS, InlineEngine, cells_of, known_preset, write_preset

CIFAR = DataSize(train=50_000, test=10_000, classes=10, shape=(3, 32, 32))


def test_the_papers_passes_by_hand() -> None:
    preset = load_preset("cifar10-paper")
    cells = plan_cells(preset, {"cifar10": None, "svhn": None})
    own = {cell.attack or cell.method: cell for cell in cells if cell.kind == "content" and cell.seed == 0}
    models = {cell.method: cell for cell in cells if cell.attack is None}
    passes = {name: training_passes(cell, CIFAR, models[cell.method]) for name, cell in own.items()}
    assert passes["vanilla"] == 100 * 40_000
    assert passes["ew"] == 120 * 40_000
    assert passes["cw"] == 100 * 40_000 + 94 * 21 * 100 * 64
    assert passes["app"] == 3 * 100 * 40_000  # two passes of 64 + 64 rows beside every 128
    assert passes["ft"] == passes["fp"] == 30 * 10_000
    assert passes["anp"] == 30 * 3 * 10_000
    assert passes["nad"] == (10 + 20) * 10_000
    assert passes["mcr"] == (50 + 100 + 21) * 5_000
    assert passes["nnl"] == (150 + 30) * 10_000
    # The verdict: clean and marked test images, twenty decoys; a curve of twenty models on all test images.
    assert evaluation_passes(own["ft"], CIFAR) == 40_000
    assert evaluation_passes(own["anp"], CIFAR) == 40_000 + 20 * 20_000


def test_passes_of_attacks_that_only_look(tmp_path: Path) -> None:
    """160 images, a fifth the attacker's: 32 at each strength and for the stolen model; BNP takes a tenth to choose."""
    extra = "".join(f"[attacks.{name}]\n" for name in ("clp", "bnp", "magnitude", "quantise", "weight-noise"))
    _, cells = cells_of(write_preset(tmp_path, extra=extra))
    cells = [cell for cell in cells if cell.method == "app"]
    model = next(cell for cell in cells if cell.attack is None)
    size = DataSize(train=160, test=80, classes=4, shape=(3, 32, 32))
    passes = {cell.attack: training_passes(cell, size, model) for cell in cells if cell.attack}
    assert (passes["clp"], passes["magnitude"], passes["quantise"]) == (22 * 32, 24 * 32, 6 * 32)
    assert passes["weight-noise"] == 12 * 32
    assert passes["bnp"] == pytest.approx(32 * (0.9 + 2.2))
    looked = {cell.attack: evaluation_passes(cell, size) for cell in cells}
    # Five models more than after FT, each by twenty clean and twenty marked test images.
    assert looked["quantise"] - looked["ft"] == 5 * 2 * 20


def test_passes_of_the_comparisons_by_hand() -> None:
    preset = load_preset("adversarial-training")
    models = {cell.method: cell for cell in plan_cells(preset, {"cifar10": None}) if cell.attack is None}
    passes = {name: training_passes(cell, CIFAR, cell) for name, cell in models.items()}
    assert passes["pgd-at"] == 11 * 100 * 40_000  # ten steps of the search, one to train
    assert passes["trades"] == 13 * 100 * 40_000  # the fixed answer, ten steps, two to train
    rates = load_preset("ft-learning-rates")
    rates = replace(rates, methods=tuple(one for one in rates.methods if one.name == "ntl"))
    (ntl, *_) = (cell for cell in plan_cells(rates, {"cifar10": None}) if cell.attack is None)
    assert training_passes(ntl, CIFAR, ntl) == 2 * 100 * 40_000


def test_passes_of_later_attacks_by_hand() -> None:
    cells = plan_cells(load_preset("cifar10-paper"), {"cifar10": None, "svhn": None})
    model = next(cell for cell in cells if cell.attack is None)
    some = next(cell for cell in cells if cell.attack == "ft")
    later = ("ft-sam", "super-ft", "fst", "i-bau", "sau", "rnp", "rehearse", "invert")

    def cell_of(name: str, **settings: float) -> BenchCell:
        own = ATTACKS[name].build(**settings).to_json()
        return replace(some, settings={**some.settings, "attack": name, "attack_settings": own})

    passes = {name: training_passes(cell_of(name), CIFAR, model) for name in later}
    assert passes == {
        "ft-sam": 3 * 2 * 25 * 10_000, "super-ft": 3 * 30 * 10_000, "fst": 3 * 10 * 10_000, "i-bau": 5 * 4 * 10_000,
        "sau": 25 * 15 * 10_000, "rnp": 40 * 500, "rehearse": (4 * 10 + 30) * 10_000,
        "invert": 2 * 15 * 10 * 10_000 + 2 * 30 * 10_000,
    }  # fmt: skip
    points = {name: (evaluation_passes(cell_of(name), CIFAR) - 40_000) / 20_000 for name in later}
    assert points == {"ft-sam": 3, "super-ft": 3, "fst": 3, "i-bau": 5, "sau": 5, "rnp": 20, "rehearse": 5, "invert": 2}
    small = cell_of("invert", cleanse_images=3000, cleanse_epochs=1, epochs=4, share=0.5)
    assert training_passes(small, CIFAR, model) == 2 * 10 * 3_000 + 4 * 10_000
    assert evaluation_passes(small, CIFAR) == 40_000
    fixed = cell_of("ft-sam", rho=2.0)
    assert training_passes(fixed, CIFAR, model) == 2 * 25 * 10_000
    assert evaluation_passes(fixed, CIFAR) == 40_000


def test_passes_of_rose_cae_and_preprocessing_by_hand() -> None:
    """A thousand images for two epochs in batches of 100: 2,000 plain passes, and what each adds."""
    train = TrainSettings(epochs=2, batch_size=100)
    assert Rose(rows=25).passes(train, 1000) == 2000 * 1.25
    fingerprint = ConferrableExamples(surrogates=2, references=3, held=1, share=0.5, candidates=10, steps=4)
    assert fingerprint.passes(train, 1000) == 2000 + 0.5 * 2000 * (2 * 2 + 3 + 1) + 10 * 4 * (1 + 2 + 3)
    # Six strengths of JPEG and the stolen model choose; five transforms are noted.
    assert InputPreprocessing().passes(500, 10) == 12 * 500
    assert InputPreprocessing(transform="flip").curve_models() == 1


@pytest.mark.parametrize("name", preset_names())
def test_every_shipped_preset_can_be_estimated(name: str) -> None:
    preset = known_preset(name)
    cells = plan_cells(preset, defaultdict[str, None](lambda: None))
    models = {cell.digest: cell for cell in cells if cell.attack is None}
    assert all((training_passes(cell, CIFAR, models[cell.needs or cell.digest]) or 0) > 0 for cell in cells)


def test_exponential_weights_share_the_runs_epochs_on_a_cpu() -> None:
    cells = plan_cells(load_preset("cifar10-cpu"), {"cifar10": None, "mnist": None})
    own = {cell.method: cell for cell in cells if cell.attack is None and cell.kind == "content"}
    assert training_passes(own["ew"], CIFAR, own["ew"]) == training_passes(own["vanilla"], CIFAR, own["vanilla"])


@pytest.mark.slow
def test_estimates_agree_with_what_runs_count(tmp_path: Path) -> None:
    _, cells = cells_of(write_preset(tmp_path, extra=OTHER_ATTACKS))
    cells = [cell for cell in cells if cell.method == "app"]
    store = Store(tmp_path / "store")
    run_cells(Board(cells), store, InlineEngine(), device="cpu")
    model = next(cell for cell in cells if cell.attack is None)
    size = size_of(model.dataset)
    assert (size.train, size.test, size.classes) == (160, 80, 4)
    for cell in cells:
        record = store.record(cell.digest)
        assert record is not None
        # Within a quarter and a few evaluations of 32 images: the search and the choice of a strength vary.
        assert record["images"] == pytest.approx(training_passes(cell, size, model), rel=0.25, abs=150), cell.attack
    records = [store.record(cell.digest) or {} for cell in cells]
    found = estimate(cells, {model.digest: model}, records)
    assert set(found.basis.values()) == {"finished cells"}
    # A pass without gradients counts as a third of one; the rate is that of the only finished cell of the same work.
    seconds = {
        cell.digest: ((training_passes(cell, size, model) or 0) + evaluation_passes(cell, size) / 3)
        / record["images_per_second"]
        for cell, record in zip(cells, records, strict=True)
    }
    assert found.seconds == pytest.approx(seconds)
    assert found.hours(2) == pytest.approx(sum(seconds.values()) / 2 / 3600)


def test_a_plain_step_is_timed_after_one_to_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read before each of two steps and after the second, which takes half a second of it."""
    readings = iter([10.0, 20.0, 20.5])
    monkeypatch.setattr("indelible.bench.estimate.time", SimpleNamespace(perf_counter=lambda: next(readings)))
    assert plain_rate("resnet-mini", shape=(1, 28, 28), batch_size=4) == 8.0


def _record(
    cell: BenchCell, hardware: dict[str, object], *, rate: float = 50.0, seconds: float = 8.0
) -> dict[str, object]:
    return {**cell.to_json(), "images_per_second": rate, "seconds": seconds, "hardware": hardware}


def test_the_machine_of_an_estimate_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indelible.base.records._processor", lambda: "Abacus 3000")
    monkeypatch.setattr("indelible.bench.estimate.plain_rate", lambda *_, **__: 100.0)
    _, cells = cells_of(write_preset(tmp_path))
    model = next(cell for cell in cells if cell.attack is None)
    here = estimate([model], {model.digest: model}, [], threads=1)
    assert here.machines == ["1 thread of Abacus 3000"]
    assert here.basis == {"tests.conftest:TinyNet": "a step measured now: 100 images/s on 1 thread of Abacus 3000"}
    # The same work at half the speed, as a finished cell of another machine says.
    there = estimate([model], {model.digest: model}, [_record(model, {"device": "cuda", "accelerator": "Loom 9"})])
    assert there.machines == ["Loom 9"]
    assert there.seconds[model.digest] == pytest.approx(2 * here.seconds[model.digest])


def test_what_a_method_of_others_costs_is_unknown_until_a_cell_is_finished(tmp_path: Path) -> None:
    _, cells = cells_of(write_preset(tmp_path, extra='[attacks.own]\nattack = "tests.bench.micro:Nothing"\n'))
    own = next(cell for cell in cells if cell.attack == "own")
    model = next(cell for cell in cells if cell.digest == own.needs)
    before = estimate([own], {model.digest: model}, [])
    assert before.hours(1) is None
    assert "what tests.bench.micro:Nothing costs is not known" in before.unknown[own.digest]
    records = [_record(own, {}, seconds=seconds) for seconds in (7.0, 9.0, 20.0)]
    assert estimate([own], {model.digest: model}, records).seconds == {own.digest: 9.0}


def test_sizes_of_sets_that_are_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INDELIBLE_DATA", str(tmp_path))
    size_of.cache_clear()
    assert size_of("cifar100") == DataSize(train=50_000, test=10_000, classes=100, shape=(3, 32, 32))
    assert size_of("cifar100?train=500").train == 500
    preset = load_preset("imagenet100-paper")
    cells = plan_cells(preset, {preset.data: None, "svhn": None})[:3]
    found = estimate(cells, {}, [])
    assert found.seconds == {}
    assert found.hours(1) is None
    assert set(found.unknown) == {cell.digest for cell in cells}
    assert f"the data set {preset.data} is not here" in found.unknown[cells[0].digest]
    size_of.cache_clear()
