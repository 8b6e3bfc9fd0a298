"""The paper's numbers, looked up by hand in its tables."""

import pytest

from indelible.base.errors import UnknownNameError
from indelible.bench.reported import REPORTED_TABLES, reported


@pytest.mark.parametrize(
    ("place", "ba", "wsr"),
    [
        (("cifar10", "content", "app", "ft"), 0.9172, 0.9663),
        (("cifar10", "content", "vanilla", None), 0.9386, 0.9956),
        (("cifar10", "noise", "ew", "nnl"), 0.9114, 0.0334),
        (("cifar10", "content", "control", None), 0.9394, 0.9975),  # Table 3, c-BN only
        (("cifar10", "content", "control", "mcr"), None, 0.1914),
        (("imagenet100", "unrelated", "app", "ft"), 0.6897, 0.9398),
        (("ablation-components", "content", "app-only", "ft"), None, 0.242),
        (("ablation-epsilon", "content", "eps-0.04", "mcr"), 0.8916, 0.8994),
        (("ablation-target", "target-2", "vanilla", "nnl"), 0.9167, 0.0252),
        (("ablation-target", "target-4", "app", None), 0.9338, 0.9973),
        (("mobilenetv2", "content", "cw", "anp"), 0.777, 0.2901),
        (("ft-learning-rates", "content", "app", "ft-2e-2"), None, 0.9945),
        (("ft-learning-rates", "content", "rose", "ft-1e-3"), None, 0.775),
        (("adversarial-training", "content", "trades", "nad"), None, 0.0545),
    ],
)
def test_as_printed(place: tuple[str, str, str, str | None], ba: float | None, wsr: float) -> None:
    found = reported(*place)
    assert found is not None
    assert dict(found) == pytest.approx({"ba": ba, "wsr": wsr})


def test_what_the_paper_does_not_report() -> None:
    assert reported("cifar10", "noise", "control") is None
    assert reported("cifar10", "content", "app", "distill") is None
    with pytest.raises(UnknownNameError, match="table of the paper"):
        reported("cifar", "content", "app")


@pytest.mark.parametrize(
    ("table", "ba", "wsr"), [("cifar10", 761019, 400697), ("cifar100", 562061, 365349), ("imagenet100", 564296, 339406)]
)
def test_the_main_tables_are_whole(table: str, ba: int, wsr: int) -> None:
    """Every number is printed in per cent with two digits; the sums of a table's 84, in hundredths of a per cent."""
    assert table in REPORTED_TABLES
    sums = {"ba": 0, "wsr": 0}
    for kind in ("content", "noise", "unrelated"):
        for method in ("vanilla", "ew", "cw", "app"):
            for attack in (None, "ft", "fp", "anp", "nad", "mcr", "nnl"):
                found = reported(table, kind, method, attack)
                assert found is not None
                for rate in sums:
                    printed = found[rate]
                    assert printed is not None
                    assert printed == round(1e4 * printed) / 1e4
                    sums[rate] += round(1e4 * printed)
    assert sums == {"ba": ba, "wsr": wsr}
