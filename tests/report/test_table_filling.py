"""Filling a table: means, spreads, AvgDrop, differences and the best, by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from indelible.bench.measurement import PAPER_ATTACKS, results_of
from indelible.report.charts import table_charts
from indelible.report.documents import outcome_of_tables, wins
from indelible.report.table_filling import fill, measured_tables
from indelible.report.table_grid import Entry, Grid, Value
from indelible.report.table_layouts import TABLES
from tests.report.results import make_cell, make_results


def _grids(document: dict[str, Any]) -> list[Grid]:
    return measured_tables([results_of(document, "results")])


def _entry(grid: Grid, labels: tuple[str, ...], title: str) -> Entry:
    (row,) = [row for row in grid.rows if row.labels == labels]
    (place,) = [
        number for number, column in enumerate(grid.columns)
        if column.title == title and (column.measure == grid.measure or column.group != "Before")
    ]  # fmt: skip
    return row.entries[place]


def test_mean_and_sample_standard_deviation() -> None:
    value = Value.of([0.1, 0.2, 0.6])
    assert value is not None
    assert value.mean == pytest.approx(0.3)
    # Squares 0.04 + 0.01 + 0.09 = 0.14, over n - 1 = 2.
    assert value.sd == pytest.approx(math.sqrt(0.07))
    assert Value.of([0.4]) == Value(mean=0.4, sd=None, seeds=1)
    assert Value.of([]) is None


def test_average_drop_by_hand() -> None:
    """Vanilla keeps 20, 18, 16, 14, 12, 10 % of 100: the mean is 15, the drop 85; reported 59.15."""
    grid = _grids(make_results())[0]
    entry = _entry(grid, ("Content", "Vanilla"), "AvgDrop")
    assert entry.measured is not None
    assert entry.measured.mean == pytest.approx(0.85)
    assert entry.reported == pytest.approx(0.5915)
    assert entry.difference == pytest.approx(0.2585)


def test_average_drop_over_seeds_is_the_mean_of_each_seeds_own() -> None:
    """Each seed keeps a point more, and starts a point lower: drops of 85, 83 and 81 points."""
    document = make_results(kinds=["content"], methods=["vanilla"], seeds=(0, 1, 2))
    for cell in document["cells"]:
        if cell["attack"] is None:
            cell["measured"]["wsr"] = 1.0 - 0.01 * cell["seed"]
    entry = _entry(_grids(document)[0], ("Content", "Vanilla"), "AvgDrop")
    assert entry.measured is not None
    assert entry.measured.mean == pytest.approx(0.83)
    assert entry.measured.sd == pytest.approx(0.02)
    assert entry.measured.seeds == 3


def test_a_seed_that_lacks_an_attack_does_not_count_for_the_drop() -> None:
    document = make_results(kinds=["content"], methods=["app"], seeds=(0, 1))
    document["cells"] = [cell for cell in document["cells"] if (cell["seed"], cell["attack"]) != (1, "nnl")]
    entry = _entry(_grids(document)[0], ("Content", "APP"), "AvgDrop")
    # Seed 0: 90, 88, 86, 84, 82, 80, mean 85.
    assert entry.measured is not None
    assert (entry.measured.seeds, entry.measured.partial) == (1, None)
    assert entry.measured.mean == pytest.approx(0.15)


def test_an_unfinished_drop_is_marked_and_not_compared() -> None:
    grid = _grids(make_results(attacks=["ft", "fp"]))[0]
    entry = _entry(grid, ("Content", "APP"), "AvgDrop")
    assert entry.measured is not None
    assert entry.measured.partial == 2
    assert entry.measured.mean == pytest.approx(0.11)  # 90 and 88 of 100
    assert entry.difference is None
    assert not entry.best_measured
    assert any("not all attacks are done" in note for note in grid.notes)
    assert _entry(grid, ("Content", "APP"), "NNL").measured is None
    assert _entry(grid, ("Content", "APP"), "NNL").reported == pytest.approx(0.6858)


def test_without_the_model_there_is_no_drop() -> None:
    document = make_results(kinds=["content"], methods=["app", "ew"])
    document["cells"] = [cell for cell in document["cells"] if cell["attack"] is not None]
    assert _entry(_grids(document)[0], ("Content", "APP"), "AvgDrop").measured is None


def test_the_best_measured_and_the_best_reported_are_told_apart() -> None:
    document = make_results(kinds=["noise"], methods=["ew", "app"])
    for cell in document["cells"]:
        if cell["attack"] == "nnl":
            cell["measured"]["wsr"] = 0.5 if cell["method"] == "app" else 0.4
    grid = _grids(document)[0]
    ours, theirs = _entry(grid, ("Noise", "APP"), "NNL"), _entry(grid, ("Noise", "EW"), "NNL")
    assert (ours.best_measured, ours.best_reported) == (True, False)
    assert (theirs.best_measured, theirs.best_reported) == (False, True)
    assert [_entry(grid, ("Noise", method), "AvgDrop").best_measured for method in ("EW", "APP")] == [False, True]
    # Both have BA 80: bold would say nothing.
    assert not any(row.entries[0].best_measured for row in grid.rows)


def test_the_control_stands_before_app_with_the_papers_ablation_beside_it() -> None:
    grid = _grids(make_results())[0]
    assert [row.labels[1] for row in grid.rows][:5] == ["Vanilla", "EW", "CW", "c-BN only", "APP"]
    entry = _entry(grid, ("Content", "c-BN only"), "FT")
    assert entry.reported == pytest.approx(0.5814)  # Table 3, second row
    assert _entry(grid, ("Noise", "c-BN only"), "FT").reported is None


def test_rows_that_are_not_measured_yet_stand_with_the_papers_numbers() -> None:
    grid = _grids(make_results(kinds=["content"], methods=["app"]))[0]
    assert len(grid.rows) == 12
    entry = _entry(grid, ("Unrelated", "EW"), "FT")
    assert entry.measured is None
    assert entry.shown == pytest.approx(0.7146)


def test_the_networks_are_named_when_they_are_not_the_papers() -> None:
    assert "Measured on resnet-mini; the paper's numbers are of ResNet-18." in _grids(make_results())[0].notes


def test_accuracy_has_a_table_of_its_own_and_no_best_after_attack() -> None:
    grid = _grids(make_results())[1]
    assert (grid.measure, grid.name) == ("ba", "cifar10-cpu-ba")
    after = [number for number, column in enumerate(grid.columns) if column.group != "Before"]
    assert not any(row.entries[at].best_measured or row.entries[at].best_reported for row in grid.rows for at in after)


def test_a_preset_the_paper_has_not_takes_the_main_layout_and_its_own_names() -> None:
    cells = [
        make_cell("content", label, attack, own={"eps": 0.02, "alpha": alpha}, name="app", wsr=alpha)
        for label, alpha in (("low", 0.01), ("high", 0.1))
        for attack in (None, "ft", "distill")
    ]
    grid = _grids({"preset": "mine", "cells": cells})[0]
    assert [row.labels for row in grid.rows] == [("Content", "high"), ("Content", "low")]
    assert [column.title for column in grid.columns] == ["BA", "WSR", "FT", "DISTILL", "AvgDrop"]
    drop = _entry(grid, ("Content", "low"), "AvgDrop").measured
    assert drop is not None
    assert drop.partial is None


def _own(*attacks: str, wsr: Sequence[float], **rest: Any) -> dict[str, Any]:
    """Results of a preset of one's own: WSR 1 before, and what is given after each attack."""
    cells = [make_cell("content", "app", None)]
    cells += [make_cell("content", "app", attack, wsr=rate) for attack, rate in zip(attacks, wsr, strict=True)]
    return {"preset": "mine.toml", "title": "Noise on the weights", "cells": cells, **rest}


def test_the_summary_of_a_preset_of_ones_own_counts_its_own_attacks() -> None:
    grid = _grids(_own("a-little", "a-lot", wsr=[0.9, 0.5], attacks=["a-little", "a-lot"]))[0]
    entry = _entry(grid, ("Content", "APP"), "AvgDrop")
    # 1 - (0.9 + 0.5) / 2; the paper has no such attacks, so nothing stands beside it.
    assert entry.measured is not None
    assert entry.measured.mean == pytest.approx(0.3)
    assert entry.measured.partial is None
    assert entry.reported is None
    assert "AvgDrop is the mean over the preset's own attacks: A-LITTLE, A-LOT." in grid.notes
    assert not any("not all attacks are done" in note for note in grid.notes)


def test_attacks_that_a_preset_plans_and_that_are_missing_make_its_summary_unfinished() -> None:
    grid = _grids(_own("a-little", wsr=[0.9], attacks=["a-little", "a-lot"]))[0]
    entry = _entry(grid, ("Content", "APP"), "AvgDrop")
    assert entry.measured is not None
    assert entry.measured.mean == pytest.approx(0.1)
    assert entry.measured.partial == 1
    assert any("not all attacks are done" in note for note in grid.notes)


def test_a_summary_over_some_of_the_papers_attacks_is_compared_with_the_same_of_the_paper() -> None:
    grid = _grids(_own("ft", "nad", wsr=[0.8, 0.6]))[0]
    entry, ft, nad = (_entry(grid, ("Content", "APP"), title) for title in ("AvgDrop", "FT", "NAD"))
    before = _entry(grid, ("Content", "APP"), "WSR").reported
    assert entry.measured is not None
    assert entry.measured.mean == pytest.approx(0.3)
    assert before is not None
    assert ft.reported is not None
    assert nad.reported is not None
    assert entry.reported == pytest.approx(before - (ft.reported + nad.reported) / 2)


def test_the_title_of_a_preset_of_ones_own_is_shown() -> None:
    grids = _grids(_own("a-lot", wsr=[0.5]))
    assert [grid.title for grid in grids] == ["Noise on the weights", "Noise on the weights, benign accuracy (BA)"]
    assert grids[0].name == "mine"  # part of file names
    assert _grids({**_own("a-lot", wsr=[0.5]), "preset": "a/b c.toml", "title": ""})[0].name == "b-c"


def test_two_networks_of_a_main_preset_are_not_averaged() -> None:
    document = make_results(kinds=["content"], methods=["app"])
    second = [{**cell, "architecture": "resnet-w8"} for cell in document["cells"]]
    grid = _grids({**document, "cells": document["cells"] + second})[0]
    assert [row.labels for row in grid.rows] == [("resnet-mini", "Content", "APP"), ("resnet-w8", "Content", "APP")]
    assert all(entry.measured is None or entry.measured.seeds == 1 for row in grid.rows for entry in row.entries)


def test_ablations_find_their_factors_in_the_models_settings() -> None:
    cells = []
    for eps in (0.005, 0.04):
        label = f"eps-{eps}"
        cells += [make_cell("content", label, None, own={"eps": eps}, name="app", preset="ablation-epsilon")]
        cells += [make_cell("content", label, "ft", wsr=10 * eps)]
    grid = _grids({"preset": "ablation-epsilon", "cells": cells})[0]
    assert _entry(grid, ("0.04",), "FT").difference == pytest.approx(0.4 - 0.9588)
    cells = [
        make_cell("target-3", "app", attack, key={"kind": "content", "target": 3}, wsr=0.5) for attack in (None, "ft")
    ]
    grid = _grids({"preset": "ablation-target", "cells": cells})[0]
    assert _entry(grid, ("APP", "3"), "FT").difference == pytest.approx(0.5 - 0.973)


def test_learning_rates_are_columns() -> None:
    cells = [make_cell("content", "app", None)]
    for label, lr in (("ft-1e-5", 1e-5), ("ft-2e-2", 2e-2)):
        cell = make_cell("content", "app", label, wsr=0.9)
        cells.append({**cell, "settings": {"attack": "ft", "attack_settings": {"lr": lr}}})
    grid = _grids({"preset": "ft-learning-rates", "cells": cells})[0]
    assert _entry(grid, ("APP",), "1e-5").difference == pytest.approx(0.9 - 0.9971)
    assert _entry(grid, ("APP",), "1e-2").measured is None


@pytest.mark.parametrize("scale", ["", "-cpu"])
def test_the_comparisons_of_the_appendix_stand_beside_the_paper(scale: str) -> None:
    cells = [make_cell("content", method, attack, wsr=0.5) for method in ("vanilla", "pgd-at", "trades", "app")
             for attack in (None, *PAPER_ATTACKS)]  # fmt: skip
    grid = _grids({"preset": f"adversarial-training{scale}", "cells": cells})[0]
    assert [row.labels for row in grid.rows] == [("Vanilla",), ("PGD-AT",), ("TRADES",), ("APP",)]
    assert _entry(grid, ("PGD-AT",), "FT").difference == pytest.approx(0.5 - 0.2059)
    assert _entry(grid, ("TRADES",), "NAD").difference == pytest.approx(0.5 - 0.0545)
    cells = [make_cell("content", method, None, wsr=0.9) for method in ("rose", "ntl", "cae", "app")]
    for cell in list(cells):
        after = make_cell("content", cell["method"], "ft-2e-2", wsr=0.4)
        cells.append({**after, "settings": {"attack": "ft", "attack_settings": {"lr": 2e-2}}})
    grid, accuracy = _grids({"preset": f"ft-learning-rates{scale}", "cells": cells})
    assert [row.labels[0] for row in accuracy.rows] == ["ROSE", "NTL", "CAE", "APP"], "nobody quotes BA"
    assert f"{len(cells) - 4} of 16 attack cells" in outcome_of_tables([grid]), "what is quoted is not waited for"
    drawn = table_charts(grid)
    assert drawn is not None
    assert all("*" not in label for label, _ in drawn.legend)
    assert [row.labels[0] for row in grid.rows] == ["ROSE*", "ROSE", "NTL*", "NTL", "CAE*", "CAE", "APP"]
    assert _entry(grid, ("NTL",), "2e-2").difference == pytest.approx(0.4 - 0.3671)
    assert any("error rate" in note for note in grid.notes)


def test_wins_are_counted_where_there_is_something_to_beat() -> None:
    assert wins(_grids(make_results())[0], measured=True) == ((18, 18), (3, 3))
    assert wins(_grids(make_results(methods=["app"]))[0], measured=True) == ((0, 0), (0, 0))
    document = make_results(kinds=["content"], methods=["vanilla", "app"], attacks=["ft", "fp"])
    for cell in document["cells"]:
        if (cell["method"], cell["attack"]) == ("vanilla", "fp"):
            cell["measured"]["wsr"] = 0.99
    assert wins(_grids(document)[0], measured=True) == ((1, 2), (0, 0))


def test_the_outcome_says_what_was_counted() -> None:
    assert outcome_of_tables(_grids(make_results(kinds=["content"]))) == (
        "CIFAR-10: cifar10-cpu: 30 of 78 attack cells are measured. The verdict shows ownership in 35 of 35 cells, "
        "before attack included (7 of 7 with APP). APP keeps the highest WSR in 6 of 6 comparisons "
        "(17 of 18 in the paper) and has the smallest AvgDrop in 1 of 1 groups."
    )


def test_training_without_a_mark_is_not_counted_as_missing_or_not_owned() -> None:
    document = make_results(kinds=["content"], methods=["vanilla", "app"], attacks=["ft", "fp"])
    counted = outcome_of_tables(_grids(document))
    assert "4 of 72 attack cells are measured. The verdict shows ownership in 6 of 6 cells" in counted
    plain = make_cell("content", "unmarked", None, wsr=0.05)
    plain["measured"] |= {"owned": False, "p_value": 0.5}
    document["cells"].append(plain)
    assert outcome_of_tables(_grids(document)) == counted


def test_an_empty_column_is_left_out_and_nothing_is_no_table() -> None:
    assert fill(replace(TABLES["cifar10"], sections=())) == []
