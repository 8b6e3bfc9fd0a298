"""The paper's numbers: complete, in their places, and equal to what it prints - but for one row of its own."""

import re
from pathlib import Path

import pytest

import indelible
from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.reported import REPORTED_TABLES, published, reported
from indelible.report.documents import wins
from indelible.report.format import rate
from indelible.report.table_filling import reported_tables
from indelible.report.table_grid import Grid
from indelible.report.table_layouts import TABLES

# Copied by hand from the paper's Table 1.
CONTENT = {
    "Vanilla": "93.86 99.56 56.78 74.58 25.34 48.14 16.56 21.02 59.15",
    "EW": "92.86 99.17 55.11 63.22 66.24 48.92 25.17 29.15 51.20",
    "CW": "93.73 99.62 26.98 54.22 27.39 29.18 29.97 19.78 68.36",
    "APP": "93.42 99.87 96.63 98.44 99.56 90.76 84.65 68.58 10.10",
}


# Of all numbers of a section, in hundredths of a per cent: BA and WSR.
SUMS = {
    "cifar10": (761019, 400697), "cifar100": (562061, 365349), "imagenet100": (564296, 339406),
    "ablation-components": (37453, 150560), "ablation-epsilon": (254497, 237321), "ablation-target": (637410, 443498),
    "mobilenetv2": (239095, 132437), "ft-learning-rates": (0, 220574), "adversarial-training": (0, 153349),
}  # fmt: skip


def _texts(grid: Grid) -> dict[tuple[str, ...], list[str]]:
    return {
        row.labels: ["–" if entry.reported is None else rate(entry.reported) for entry in row.entries]
        for row in grid.rows
    }


def test_table_1_as_printed() -> None:
    grid = reported_tables(["cifar10"])[0]
    shown = _texts(grid)
    assert [(column.group, column.title) for column in grid.columns] == [
        ("Before", "BA"), ("Before", "WSR"), *(("After", name) for name in ("FT", "FP", "ANP", "NAD", "MCR", "NNL")),
        ("", "AvgDrop"),
    ]  # fmt: skip
    assert {method: " ".join(shown["Content", method]) for method in CONTENT} == CONTENT
    assert list(shown) == [(kind, method) for kind in ("Content", "Noise", "Unrelated") for method in CONTENT]
    assert shown["Noise", "EW"][-2:] == ["3.34", "87.25"]
    assert shown["Unrelated", "APP"][-1] == "6.20"


def test_every_printed_summary_is_the_mean_of_its_row_but_for_one() -> None:
    """AvgDrop by a second way: from the printed cells, to the rounding of three numbers (0.015 points)."""
    apart, compared = [], 0
    for grid in reported_tables(["all"]):
        for row in grid.rows:
            before = next(one for one in row.entries[0].measurements if one.attack is None)
            said = before.printed.get(f"{grid.measure} {grid.layout.summary}")
            after = [
                entry.reported for column, entry in zip(grid.columns, row.entries, strict=True)
                if column.group == "After" and entry.reported is not None
            ]  # fmt: skip
            if said is None or grid.layout.summary is None:
                continue
            mean = sum(after) / 6
            start = before.wsr if grid.measure == "wsr" else before.ba
            assert start is not None
            computed = start - mean if grid.layout.summary == "avg_drop" else mean
            compared += 1
            if abs(computed - said) > 1.51e-4:
                apart.append((grid.name, row.labels, rate(said), rate(computed)))
    assert apart == [("cifar10-ba", ("Unrelated", "CW"), "4.60", "4.09")]
    # Three tables of 12 rows twice, four components, four eps twice, two methods x five targets twice, MobileNetV2.
    assert compared == 3 * 12 * 2 + 4 + 4 * 2 + 10 * 2 + 4 * 2


def test_the_row_that_disagrees_says_so() -> None:
    grid = reported_tables(["cifar10"])[1]
    assert grid.notes == ("Unrelated, CW: The paper prints 4.60; the mean over its own row gives 4.09.",)


def test_bold_is_where_the_paper_has_it() -> None:
    """Copied from the paper's Table 2, noise: EW has the best BA, Vanilla the best WSR after NNL, APP all else."""
    grid = reported_tables(["imagenet100"])[0]
    best = {
        row.labels[1]: [entry.best_reported for entry in row.entries] for row in grid.rows if row.labels[0] == "Noise"
    }
    assert best["EW"] == [True] + [False] * 8
    assert best["Vanilla"] == [False] * 7 + [True, False]
    assert best["APP"] == [False, True, True, True, True, True, True, False, True]
    assert best["CW"] == [False] * 9


def test_equal_numbers_are_both_bold() -> None:
    grid = reported_tables(["cifar10"])[0]
    noise = {row.labels[1]: row.entries[1].best_reported for row in grid.rows if row.labels[0] == "Noise"}
    assert noise == {"Vanilla": False, "EW": False, "CW": True, "APP": True}


def test_app_wins_as_often_as_the_text_says() -> None:
    """Section 5.2: "the highest robustness in 17 of the total 18 cases"."""
    assert wins(reported_tables(["cifar10"])[0], measured=False) == ((17, 18), (3, 3))


def test_the_components_are_ticks() -> None:
    shown = _texts(reported_tables(["ablation-components"])[0])
    assert list(shown) == [("–", "–"), ("–", "✓"), ("✓", "–"), ("✓", "✓")]
    assert " ".join(shown["✓", "–"]) == "93.31 99.69 24.20 38.16 0.91 14.16 19.23 8.03 82.24"


def test_other_tables_have_their_own_columns() -> None:
    rates = reported_tables(["ft-learning-rates"])[0]
    assert [column.title for column in rates.columns] == ["WSR", "1e-5", "1e-3", "1e-2", "2e-2"]
    shown = _texts(rates)
    assert shown["NTL*",] == ["85.20", "–", "86.50", "–", "–"]
    assert shown["APP",] == ["99.87", "99.71", "99.85", "99.71", "99.45"]
    epsilon = reported_tables(["ablation-epsilon"])
    assert [row.labels for row in epsilon[0].rows] == [("0.005",), ("0.01",), ("0.02",), ("0.04",)]
    assert [grid.columns[-1].title for grid in epsilon] == ["AVG", "AVG"]
    assert _texts(epsilon[1])["0.04",][-1] == "89.99"
    networks = _texts(reported_tables(["architectures"])[0])
    assert next(iter(networks)) == ("MobileNetV2", "Vanilla")
    assert networks["ResNet-18", "APP"] == ["93.42", "99.87", "96.63", "99.56", "90.76", "84.65"]


def test_every_section_fills_a_table_and_every_row_has_a_source() -> None:
    used = {section for layout in TABLES.entries() for section in layout.sections}
    assert used == set(REPORTED_TABLES)
    every = [one for section in REPORTED_TABLES for one in published(section)]
    assert all(one.place for one in every)
    # Rows x (before, six attacks): three main tables of 12, components 4, eps 4, two methods x five targets,
    # MobileNetV2 4, adversarial training 4. Learning rates: seven rows x (before, four rates), of which the three
    # quoted rows have one each.
    whole = 7 * (3 * 12 + 4 + 4 + 10 + 4)
    assert sum(one.wsr is not None for one in every) == whole + 7 * 4 + 7 * 5 - 3 * 3
    assert sum(one.ba is not None for one in every) == whole - 6 * 4  # of the components BA before attack only
    rates = [rate for one in every for rate in (one.wsr, one.ba) if rate is not None]
    assert [rate for rate in rates if rate != round(1e4 * rate) / 1e4] == [], "in per cent, with two digits at most"
    for section, sums in SUMS.items():
        numbers = [(one.ba or 0.0, one.wsr or 0.0) for one in published(section)]
        assert tuple(sum(round(1e4 * rate) for rate in column) for column in zip(*numbers, strict=True)) == sums, (
            section
        )
    assert set(SUMS) == used


def test_both_readers_of_the_numbers_agree() -> None:
    """The benchmark asks cell by cell, the tables row by row; both say the same."""
    for dataset in ("cifar10", "cifar100", "imagenet100"):
        assert len(published(dataset)) == 3 * 4 * 7  # kinds, methods, before and six attacks
        for one in published(dataset):
            said = reported(dataset, one.kind, one.method, one.attack)
            assert said is not None
            assert dict(said) == pytest.approx({"ba": one.ba, "wsr": one.wsr})


def test_unknown_tables_and_tables_without_numbers_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'cifar10'"):
        reported_tables(["cifar1"])
    with pytest.raises(InputError, match=r"prints no numbers for 'ablation-trigger'.*bench run ablation-trigger"):
        reported_tables(["ablation-trigger"])
    with pytest.raises(UnknownNameError, match=r"unknown table of the paper 'nothing': choose one of .*cifar10"):
        published("nothing")


def test_the_numbers_ship_as_printed() -> None:
    text = Path(indelible.__file__).parent.joinpath("bench/assets/reported.json").read_text()
    assert len(re.findall(r"\d+\.\d+", text)) > 700
