"""Results of the benchmark, read and refused."""

from pathlib import Path
from typing import Any

import pytest

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.measurement import is_store, read_results, results_of
from indelible.report.table_filling import measured_tables
from tests.report.results import fill_store, make_cell, make_results


def test_a_cell_becomes_an_observation() -> None:
    (one,) = results_of({"preset": "p", "cells": [make_cell("content", "vanilla", "ft", seed=2)]}, "x").measurements
    assert (one.dataset, one.architecture, one.kind, one.method, one.attack, one.seed) == (
        "cifar10", "resnet-mini", "content", "vanilla", "ft", 2,
    )  # fmt: skip
    assert (one.ba, one.wsr, one.p_value, one.seconds) == (0.8, 0.22, 1e-12, 75.0)
    assert one.factors == {"lr": 0.05}


@pytest.mark.parametrize(
    ("own", "variant"),
    [
        ({"eps": 0.02, "clean_bn": True}, "app"), ({"eps": 0.02}, "app"), ({"eps": 0.0, "clean_bn": True}, "control"),
        ({"eps": 0.02, "clean_bn": False}, "app-only"), ({"eps": 0.0, "clean_bn": False}, "exposure"),
    ],
)  # fmt: skip
def test_app_is_named_by_what_is_switched_on(own: dict[str, Any], variant: str) -> None:
    (one,) = results_of({"preset": "p", "cells": [make_cell("content", "app", None, own=own)]}, "x").measurements
    assert one.variant == variant


def test_an_attack_knows_what_its_model_was_made_with() -> None:
    cells = [
        make_cell("target-3", "eps-0.04", "ft", wsr=0.5),
        make_cell("target-3", "eps-0.04", None, key={"kind": "content", "target": 3}, own={"eps": 0.04}, name="app"),
    ]
    attacked, model = results_of({"preset": "p", "cells": cells}, "x").measurements
    assert attacked.kind == model.kind == "content"
    assert attacked.mark == "target-3"
    assert attacked.variant == "app"
    assert attacked.factors == {"target": 3, "eps": 0.04, "lr": 0.05}


def test_the_history_of_a_model_is_its_curve() -> None:
    rows = [{"epoch": 5, "ba": 0.5, "wsr": 0.9}, {"epoch": 10, "ba": 0.7, "wsr": 1.0}]
    (one,) = results_of({"preset": "p", "cells": [make_cell("content", "ew", None, history=rows)]}, "x").measurements
    assert one.curve is not None
    assert one.curve["name"] == "epoch"
    assert [row["value"] for row in one.curve["rows"]] == [5, 10]


def test_a_store_is_read_preset_by_preset(tmp_path: Path) -> None:
    (tmp_path / "bench" / "cells").mkdir(parents=True)
    assert is_store(tmp_path / "bench")
    assert not is_store(tmp_path)
    with pytest.raises(InputError, match="no finished cell yet"):
        read_results(tmp_path / "bench")
    cells = [
        make_cell("content", "app", attack) | {"preset": preset}
        for preset, attack in (("cifar10-cpu", None), ("smoke", "ft"))
    ]
    fill_store(tmp_path / "bench", cells)
    found = read_results(tmp_path / "bench")
    assert [(one.preset, len(one.measurements)) for one in found] == [("cifar10-cpu", 1), ("smoke", 1)]


def test_a_record_says_which_preset_made_it_with_what_title_and_attacks(tmp_path: Path) -> None:
    name = "my presets/noise.toml"
    command = f"indelible bench run '{name}' --only x"
    made = {"preset": name, "title": "Noise", "attacks": ["a-lot"], "command": command}
    fill_store(tmp_path / "bench", [make_cell("content", "app", None) | made])
    (found,) = read_results(tmp_path / "bench")
    assert (found.preset, found.title, found.attacks) == (name, "Noise", ("a-lot",))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must hold the results of a preset"),
        ({"preset": "p"}, "must hold the results of a preset"),
        ({"preset": "p", "cells": [1]}, "cell 1 of f.json must have an object"),
        ({"preset": "p", "cells": [{**make_cell("content", "ew", None), "kind": 3}]}, "a text 'kind', got 3"),
        ({"preset": "p", "cells": [{**make_cell("content", "ew", None), "measured": None}]}, "'measured'"),
        ({"preset": "p", "cells": [{**make_cell("content", "ew", None), "attack": 1}]}, "a text 'attack', or null"),
        ({"preset": "p", "cells": [{**make_cell("content", "ew", None), "measured": {"wsr": "1"}}]}, "a number 'wsr'"),
    ],
)
def test_what_is_not_a_result_is_refused(document: Any, message: str) -> None:
    with pytest.raises(DamagedFileError, match=message):
        results_of(document, "f.json")


def test_results_without_a_cell_are_refused() -> None:
    with pytest.raises(InputError, match="hold no cell yet"):
        measured_tables([results_of({**make_results(), "cells": []}, "x")])
