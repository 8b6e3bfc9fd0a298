"""Super-fine-tuning: the rate at given steps by hand, in the schedule and in the run's history."""

import pytest

from indelible.attacks import SuperFineTuning
from indelible.attacks.removal_attack import attack
from indelible.attacks.super_ft import PEAKS, Triangles, triangle
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.train.loop import Loop
from tests.attacks.few_steps import CATALOGUE, check_few_steps
from tests.conftest import TinyNet
from tests.values import attack_value


def test_settings() -> None:
    value = SuperFineTuning()
    assert (value.peak, PEAKS, value.second_peak, value.base) == (None, (0.03, 0.1, 0.3), 0.001, 3e-4)
    assert (value.cycle, value.share, value.epochs, value.batch_size) == (20, 0.4, 30, 128)
    assert eval(repr(value)) == value  # noqa: S307 - that is the promise


def test_a_triangle_by_hand() -> None:
    """From 0.1 to 0.5 and back in 4 steps, again and again."""
    rates = [triangle(step, base=0.1, peak=0.5, cycle=4) for step in range(9)]
    assert rates == pytest.approx([0.1, 0.3, 0.5, 0.3, 0.1, 0.3, 0.5, 0.3, 0.1])
    assert triangle(0.5, base=0.1, peak=0.5, cycle=4) == pytest.approx(0.2)


def test_two_phases_by_hand() -> None:
    """Ten epochs, four of them large, triangles of two epochs: as factors of the peak 0.5."""
    schedule = Triangles(base=0.1, peak=0.5, second_peak=0.2, cycle=2.0, share=0.4)
    rates = [0.5 * schedule.factor(epoch, 10) for epoch in (0, 0.5, 1, 2, 3, 3.5, 4, 4.5, 5, 6, 9.5)]
    assert rates == pytest.approx([0.1, 0.3, 0.5, 0.1, 0.5, 0.3, 0.1, 0.15, 0.2, 0.1, 0.15])


def test_the_rates_of_a_run(net: TinyNet, data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """320 images in batches of 64 are 5 steps; two epochs, the first half large, triangles of 4 steps."""
    seen, advance = list[float](), Loop.advance

    def noting(self: Loop, *args: object) -> None:
        advance(self, *args)  # type: ignore[arg-type]
        seen.append(self.optimizer.param_groups[0]["lr"])

    monkeypatch.setattr(Loop, "advance", noting)
    attack(
        net, data,
        attack_value(
            "super-ft", epochs=2, batch_size=64, cycle=4, share=0.5, peak=0.1, second_peak=0.02, base=0.01
        ), device="cpu",
    )  # fmt: skip
    large, small = [0.01, 0.055, 0.1, 0.055, 0.01], [0.01, 0.015, 0.02, 0.015, 0.01]
    assert seen == pytest.approx([*large, *small])


def test_passes_and_curve(net: TinyNet, data: ImageData) -> None:
    attacked = attack(net, data, attack_value("super-ft", epochs=1), device="cpu")
    assert attacked.curve is not None
    assert (attacked.curve.name, attacked.curve.values) == ("peak", PEAKS)
    assert attacked.record.images == 3 * 288 + 4 * 32


@pytest.mark.parametrize("network", CATALOGUE)
def test_a_few_steps(network: str) -> None:
    check_few_steps("super-ft", network, epochs=1, batch_size=4, cycle=2, peak=0.1, share=0.9)


def test_refusals() -> None:
    with pytest.raises(InputError, match=r"base <= second_peak <= peak, got base=0.0003, second_peak=0.5, peak=0.1"):
        SuperFineTuning(peak=0.1, second_peak=0.5)
    with pytest.raises(InputError, match="cycle must be at least 2, got 1"):
        SuperFineTuning(cycle=1)
    with pytest.raises(InputError, match="one protocol"):
        SuperFineTuning(protocol="paper")
