"""Figures of tables, and the small curves behind cells."""

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from indelible.bench.measurement import results_of
from indelible.report import measured_tables, reported_tables
from indelible.report.charts import draw, sparkline, table_charts
from tests.report.results import make_results


def test_one_chart_for_each_kind_with_the_methods_as_curves() -> None:
    panel = table_charts(reported_tables(["cifar10"])[0])
    assert panel is not None
    assert [chart.title for chart in panel.charts] == ["Content, reported", "Noise, reported", "Unrelated, reported"]
    content = panel.charts[0]
    assert content.ticks == ("Before", "FT", "FP", "ANP", "NAD", "MCR", "NNL")
    assert [series.label for series in content.series] == ["Vanilla", "EW", "CW", "APP"]
    assert content.series[3].points[6] == pytest.approx((6.0, 68.58))
    assert "Content, reported: WSR of Vanilla, EW, CW and APP at Before, FT" in content.alt


def test_app_has_the_same_look_everywhere() -> None:
    for name in ("cifar10", "adversarial-training", "architectures", "ablation-target"):
        panel = table_charts(reported_tables([name])[0])
        assert panel is not None
        assert dict(panel.legend)["APP"] == 2
        assert len(set(dict(panel.legend).values())) == len(panel.legend), f"{name}: two curves look the same"


def test_measured_stands_beside_reported() -> None:
    grid = measured_tables([results_of(make_results(kinds=["content"]), "x")])[0]
    panel = table_charts(grid)
    assert panel is not None
    assert [chart.title for chart in panel.charts][:2] == ["Content, measured", "Content, reported"]
    assert panel.charts[0].series[0].points[1] == pytest.approx((1.0, 20.0))


def test_ablations_run_along_what_they_vary() -> None:
    epsilon = table_charts(reported_tables(["ablation-epsilon"])[0])
    assert epsilon is not None
    (chart,) = epsilon.charts
    assert (chart.over, chart.ticks) == ("ε", ("0.005", "0.01", "0.02", "0.04"))
    assert [series.label for series in chart.series] == ["FT", "FP", "ANP", "NAD", "MCR", "NNL"]
    target = table_charts(reported_tables(["ablation-target"])[0])
    assert target is not None
    assert target.charts[0].title == "FT, reported"
    assert target.charts[0].series[1].points[1] == pytest.approx((1.0, 97.69))
    networks = table_charts(reported_tables(["architectures"])[0])
    assert networks is not None
    assert [chart.title for chart in networks.charts] == [f"{name}, reported" for name in ("FT", "ANP", "NAD", "MCR")]
    assert networks.charts[0].ticks == ("MobileNetV2", "ResNet-18")
    assert [height for _, height in networks.charts[0].series[3].points] == pytest.approx([67.84, 96.63])
    components = table_charts(reported_tables(["ablation-components"])[0])
    assert components is not None
    assert [label for label, _ in components.legend] == ["Vanilla", "c-BN only", "APP only", "APP"]


def test_accuracy_has_no_figure() -> None:
    assert table_charts(reported_tables(["cifar10"])[1]) is None


def test_a_figure_is_drawn_with_names_on_its_axis() -> None:
    pytest.importorskip("matplotlib")
    panel = table_charts(reported_tables(["cifar10"])[0])
    assert panel is not None
    svg = draw(panel.charts[0], "x")
    assert all(f">{name}<" in svg for name in ("Before", "FT", "NNL", "Attack"))


CURVE = {
    "name": "a <b>", "chosen": 0.5,
    "rows": [{"value": 0.0, "ba": 0.9, "wsr": 1.0}, {"value": 1.0, "ba": 0.8, "wsr": 0.25}],
}  # fmt: skip


def test_a_small_curve_is_svg_with_its_numbers_in_words() -> None:
    drawn = sparkline(CURVE)
    root = ET.fromstring(str(drawn))  # noqa: S314 - our own text
    assert root.get("aria-label") == "WSR from 100.0 to 25.0 % and BA from 90.0 to 80.0 % over a <b> 0 to 1"
    # WSR: from the top (8) to a quarter of the height of 104 above the bottom (112).
    assert 'd="M30.0 8.0L312.0 86.0"' in str(drawn)
    assert 'd="M171.0 8.0v104.0"' in str(drawn), "the chosen strength is a vertical line"


@pytest.mark.parametrize("curve", [None, 3, {}, {"rows": []}, {"rows": [{"value": None, "wsr": 1.0}]}, {"rows": "x"}])
def test_what_is_no_curve_is_not_drawn(curve: Any) -> None:
    assert sparkline(curve) is None


def test_a_curve_of_one_point_is_drawn_in_the_middle() -> None:
    assert "translate(171.0 60.0)" in str(sparkline({"name": "t", "rows": [{"value": 2, "wsr": 0.5}]}))
