"""The landscape: its centre is the model, its points are what a direct computation gives, and it resumes."""

import copy
from pathlib import Path

import pytest
import torch

from indelible.analyze.analysis import read_analysis, write_analysis
from indelible.analyze.directions import combined, relative_length, weights_of
from indelible.analyze.marked_model import MarkedModel, Probe, Rates
from indelible.analyze.weight_landscape import Landscape, LandscapeSettings, Plane, Vicinity, landscape
from indelible.base.errors import InputError
from indelible.nn.statistics import estimate_statistics
from indelible.train.evaluate import accuracy
from indelible_companions.certificate import hit_rate
from tests.analyze.marked_models import marked_subject

SMALL = LandscapeSettings(
    adv=(-0.1, 0.1), ft=(-0.1, 0.1), steps=5, stride=2, tolerance=-1, images=1000, marked=1000, statistics=64,
    tune_steps=3, reach=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def subject() -> MarkedModel:
    return marked_subject()


@pytest.fixture(scope="module")
def made(subject: MarkedModel) -> Landscape:
    return landscape([subject], SMALL)


def test_the_centre_is_the_model(subject: MarkedModel, made: Landscape) -> None:
    (plane,) = made.planes
    samples = subject.key.samples(subject.test, purpose="verify")
    wsr = hit_rate(subject.model, samples.images, samples.labels)
    ba = accuracy(subject.model, subject.test)
    assert (plane.wsr[2][2], plane.ba[2][2]) == (wsr, ba)
    assert plane.own == Rates(ba, wsr)
    assert wsr > 0.8, "the tests need a model that carries the mark"


def test_a_point_against_a_direct_computation(subject: MarkedModel, made: Landscape) -> None:
    """Weights moved by hand, statistics from the same clean images, rates by the package's own evaluation."""
    vicinity = Vicinity(subject, SMALL)
    a, b = SMALL.axes[0][4], SMALL.axes[1][1]
    moved = copy.deepcopy(subject.model)
    with torch.no_grad():
        for weight, part in zip(weights_of(moved), combined(vicinity.adv, vicinity.ft, a, b), strict=True):
            weight.add_(part)
    estimate_statistics(moved, vicinity.probe.statistics)
    samples = subject.key.samples(subject.test, purpose="verify")
    (plane,) = made.planes
    assert plane.wsr[1][4] == pytest.approx(hit_rate(moved, samples.images, samples.labels), abs=0.02)
    assert plane.ba[1][4] == pytest.approx(accuracy(moved, subject.test), abs=0.02)


def test_neither_model_nor_statistics_are_changed(subject: MarkedModel) -> None:
    before = copy.deepcopy(subject.model.state_dict())
    vicinity = Vicinity(subject, SMALL)
    weights = [weight.clone() for weight in vicinity.weights]
    vicinity.rates(0.05, 0.05)
    assert all(torch.equal(before[name], value) for name, value in subject.model.state_dict().items())
    assert all(torch.equal(one, other) for one, other in zip(weights, vicinity.weights, strict=True))
    for direction in (vicinity.adv, vicinity.ft):
        assert relative_length(vicinity.weights, direction) == pytest.approx(1.0, rel=1e-5)


def test_every_node_once_and_the_walk_shares_them(made: Landscape) -> None:
    (plane,) = made.planes
    assert all(map(all, plane.measured))
    assert plane.passes % Probe(marked_subject(), images=1000, marked=1000, statistics=64).passes == 0
    assert [len(row) for row in (*plane.wsr, *plane.ba)] == [5] * 10
    assert [values[2] for values in made.settings.axes] == [0.0, 0.0]
    assert (plane.label, plane.wsr[2][2], plane.ba[2][2]) == ("marked", plane.own.wsr, plane.own.ba)


def test_a_broken_landscape_goes_on(
    subject: MarkedModel, made: Landscape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0
    real = Vicinity.rates

    def breaking(self: Vicinity, a: float, b: float) -> Rates:
        nonlocal done
        done += 1
        if done == 8:
            raise KeyboardInterrupt
        return real(self, a, b)

    monkeypatch.setattr(Vicinity, "rates", breaking)
    with pytest.raises(KeyboardInterrupt):
        landscape([subject], SMALL, tmp_path)
    resumed = landscape([subject], SMALL, tmp_path)
    assert [(one.wsr, one.ba, one.adv, one.ft) for one in resumed.planes] == [
        (one.wsr, one.ba, one.adv, one.ft) for one in made.planes
    ]
    counted = done
    landscape([subject], SMALL, tmp_path)
    assert done == counted, "a finished landscape measures nothing"
    with pytest.raises(InputError, match="other settings"):
        landscape([subject], LandscapeSettings(steps=5), tmp_path)


def test_it_is_kept_and_read_back(made: Landscape, tmp_path: Path) -> None:
    write_analysis(tmp_path, made)
    assert read_analysis(tmp_path) == made


def test_without_batchnorm_nothing_is_estimated(subject: MarkedModel) -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    bare = MarkedModel.of(model, subject.key, test=subject.test, attacker=subject.attacker, owner=subject.owner)
    vicinity = Vicinity(bare, SMALL)
    assert vicinity.rates(0.0, 0.0) == vicinity.own


def test_removed_by_hand() -> None:
    """Of four nodes two lost the mark, and one of these keeps BA 0.8 to within 0.05."""
    from indelible.analyze.adaptive_grid import FirstFall

    rates, fall = Rates(0.8, 1.0), FirstFall(level=0.5, distance=None, ba=None, reach=1.0)
    plane = Plane(
        label="x", own=rates, reestimated=rates, tuned=0.1, tuned_rates=rates, cosine=0.0, wsr=((1.0, 0.4), (0.2, 0.9)),
        ba=((0.8, 0.76), (0.5, 0.8)), measured=((True,) * 2,) * 2, adv=fall, ft=fall, passes=0, seconds=0.0,
    )  # fmt: skip
    assert plane.removed == 0.25


def test_nothing_to_look_at_is_refused() -> None:
    with pytest.raises(InputError, match="at least one model"):
        landscape([])
    with pytest.raises(InputError, match="reach"):
        LandscapeSettings(reach=0.5)
