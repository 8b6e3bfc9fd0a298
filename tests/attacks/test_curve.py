"""Curves: the choice under a budget by hand, and what an evaluator adds from outside."""

import pytest
import torch

from indelible.attacks.curve import Curve, choose, evaluate_curve
from indelible.attacks.removal_attack import Removal
from indelible.base.errors import InputError, UnknownNameError
from tests.conftest import TinyNet, stripes


def test_the_strongest_value_within_the_budget() -> None:
    values, accuracies = (0.0, 0.5, 0.9, 0.95), (0.9, 0.91, 0.88, 0.7)
    assert choose(values, accuracies, 0.9, 0.02) == 0.9  # a drop of exactly two points is within two points
    assert choose(values, accuracies, 0.9, 0.01) == 0.5
    assert choose(values, accuracies, 0.9, 0.02, "low") == 0.0
    assert choose(values, accuracies, 0.9, 0.5) == 0.95


def test_without_an_affordable_value_the_most_accurate_is_taken() -> None:
    assert choose((0.1, 0.2, 0.3), (0.5, 0.6, 0.4), 0.9, 0.02) == 0.2
    assert choose((0.1, 0.2, 0.3), (0.6, 0.6, 0.4), 0.9, 0.02) == 0.2
    assert choose((0.1, 0.2, 0.3), (0.6, 0.6, 0.4), 0.9, 0.02, "low") == 0.1


def test_refusals() -> None:
    with pytest.raises(InputError, match="one accuracy for each"):
        choose((0.1,), (), 0.9, 0.02)
    with pytest.raises(UnknownNameError, match="direction"):
        choose((0.1,), (0.5,), 0.9, 0.02, "up")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"rate 0\.7 is not among"):
        Curve(name="rate", values=(0.1,), accuracies=(0.5,), chosen=0.7, build=lambda _: TinyNet())


def test_an_evaluator_measures_every_value() -> None:
    built: list[float] = []

    def build(value: float) -> TinyNet:
        built.append(value)
        return TinyNet()

    curve = Curve(name="rate", values=(0.1, 0.2), accuracies=(0.5, 0.4), chosen=0.2, build=build)
    assert not built  # models are made when they are wanted
    rows = evaluate_curve(curve, lambda model: {"wsr": float(isinstance(model, TinyNet))})
    assert rows == [
        {"value": 0.1, "accuracy": 0.5, "chosen": False, "wsr": 1.0},
        {"value": 0.2, "accuracy": 0.4, "chosen": True, "wsr": 1.0},
    ]
    assert built == [0.1, 0.2]
    assert curve.to_json() == {"name": "rate", "values": [0.1, 0.2], "accuracies": [0.5, 0.4], "chosen": 0.2}


def test_the_held_out_part_is_a_tenth_disjoint_and_seeded() -> None:
    data = stripes(50)
    job = Removal(model=TinyNet(), data=data, seed=3, device="cpu")
    fitting, held = job.parts()
    assert (len(fitting), len(held)) == (45, 5)
    rows = {bytes(image.numpy()) for part in (fitting, held) for image in part.gather(torch.arange(len(part))).images}
    assert len(rows) == 50
    again = Removal(model=TinyNet(), data=data, seed=3, device="cpu").parts()
    other = Removal(model=TinyNet(), data=data, seed=4, device="cpu").parts()
    assert again[1].digest() == held.digest() != other[1].digest()
    with pytest.raises(InputError, match="too few to hold some out"):
        Removal(model=TinyNet(), data=stripes(2), seed=0).parts()


def test_cost_counts_work_outside_training() -> None:
    job = Removal(model=TinyNet(), data=stripes(20), seed=0, device="cpu")
    job.accuracy(job.model, job.data)
    job.count(7, seconds=2.0)
    job.note(rate=0.5)
    assert job.cost(1.0) == (3.0, 27)
    assert job.figures == {"rate": 0.5}
