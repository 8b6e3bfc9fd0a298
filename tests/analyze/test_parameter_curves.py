"""Curves from hand-made records: which value, which curve, which mean."""

import json
from pathlib import Path
from typing import Any

import pytest

from indelible.analyze.benchmark_curves import Curves, curves
from indelible.attacks import attack
from indelible.base.errors import DamagedFileError, InputError, UnknownNameError
from indelible.bench.measurement import of_cells, read_measurements
from indelible.keys.key import Key
from indelible.report.figures import curves_drawing
from tests.conftest import TinyNet, stripes
from tests.report.runs import SECRET, make_run, make_verdict


def _cell(eps: float, seed: int, wsr: float, attack: str | None = None, **more: Any) -> dict[str, Any]:
    own = {"attack": attack, "attack_settings": {"eps": 0.4}}
    model = {"method": "app", "method_settings": {"eps": eps}, "key": {"size": 1.0, "target": None}}
    return {
        "dataset": "d", "architecture": "net", "kind": "content", "method": f"eps-{eps}", "attack": attack,
        "seed": seed, "settings": own if attack else model, "measured": {"ba": 0.9, "wsr": wsr}, **more,
    }  # fmt: skip


def test_seeds_are_averaged_and_attacks_find_their_models_settings() -> None:
    """ANP has an eps of its own, 0.4: it is the model's that counts."""
    cells = [
        _cell(0.02, 0, 1.0), _cell(0.02, 1, 1.0), _cell(0.01, 0, 0.9),
        _cell(0.02, 0, 0.8, "anp", reported={"ba": 0.9, "wsr": 0.99}), _cell(0.02, 1, 0.6, "anp"),
        _cell(0.01, 0, 0.5, "anp"),
    ]  # fmt: skip
    for cell in cells[3:]:
        cell["measured"]["owned"] = cell["measured"]["wsr"] > 0.5
    made = curves(of_cells(cells), "eps")
    assert [line.label for line in made.lines] == ["app", "app after ANP"]
    low, high = made.lines[1].marks
    assert (low.x, low.at, low.wsr, low.wsr_sd, low.seeds) == ("0.01", 0.01, 0.5, None, 1)
    assert high.wsr == pytest.approx(0.7)
    assert (high.seeds, high.reported_wsr) == (2, 0.99)
    assert high.wsr_sd == pytest.approx(0.02**0.5)
    assert [line.label for line in curves(of_cells(cells), "eps", attack="anp").lines] == ["app after ANP"]
    assert [(mark.owned, mark.verdicts) for mark in (low, high)] == [(0, 1), (2, 2)]
    assert "2 of 3 verdicts show ownership" in made.sentences()[1]
    assert "no verdicts were made" in made.sentences()[0]
    assert Curves.from_json(made.to_json()) == made
    assert "from 50.0 % (at 0.01) to 70.0 % (at 0.02)" in made.sentences()[1]


def test_kinds_and_networks_are_not_averaged_together() -> None:
    """The noise model's label is its own; its registered kind tells the curves apart."""
    cells = [_cell(eps, 0, wsr) for eps, wsr in ((0.01, 0.9), (0.02, 1.0))]
    for eps in (0.01, 0.02):
        noise = _cell(eps, 0, 0.5)
        noise |= {"kind": "noise-0.1", "settings": {**noise["settings"], "key": {"kind": "noise"}}}
        cells.append(noise)
    assert {line.label: line.marks[0].wsr for line in curves(of_cells(cells), "eps").lines} == {
        "app, content": 0.9,
        "app, noise": 0.5,
    }
    assert [line.label for line in curves(of_cells(cells), "eps", kind="content").lines] == ["app"]


@pytest.mark.parametrize("name", ["clp", "bnp", "magnitude", "quantise", "weight-noise"])
def test_the_strength_of_every_such_attack_can_be_drawn(name: str) -> None:
    """The curve's own name is a variable, and the figure has words for it."""
    made = attack(TinyNet(), stripes(20), name, device="cpu").curve
    assert made is not None
    rows = [{"value": value, "wsr": 0.5, "ba": 0.9} for value in made.values]
    cell = _cell(0.02, 0, 0.5, name, curve={"name": made.name, "rows": rows})
    (line,) = curves(of_cells([cell]), made.name).lines
    assert [mark.at for mark in line.marks] == list(made.values)
    assert curves_drawing(curves(of_cells([cell]), made.name)).alt.startswith("WSR and BA against ")


def test_names_keep_their_order() -> None:
    cells = [{**_cell(0.02, 0, 0.9), "architecture": name} for name in ("vgg-16", "resnet-18", "mobilenetv2")]
    (line,) = curves(of_cells(cells), "architecture").lines
    assert [mark.x for mark in line.marks] == ["vgg-16", "resnet-18", "mobilenetv2"]
    assert all(mark.at is None for mark in line.marks)


def test_the_strengths_of_an_attack() -> None:
    rows = [{"value": t, "ba": 0.9, "wsr": w, "chosen": False} for t, w in ((0.0, 1.0), (0.5, 0.7), (0.9, 0.2))]
    cells = [_cell(0.02, 0, 1.0), _cell(0.02, 0, 0.2, "mcr", curve={"name": "t", "chosen": 0.9, "rows": rows})]
    (line,) = curves(of_cells(cells), "t").lines
    assert [(mark.at, mark.wsr) for mark in line.marks] == [(0.0, 1.0), (0.5, 0.7), (0.9, 0.2)]
    with pytest.raises(InputError, match="no records vary rate"):
        curves(of_cells(cells), "rate")


def test_a_control_is_a_curve_of_its_own() -> None:
    """APP and APP with eps 0 are one method; only over eps are they one curve."""
    rows = [{"value": t, "ba": 0.9, "wsr": 1.0 - t, "chosen": False} for t in (0.0, 0.5)]
    curve = {"curve": {"name": "t", "chosen": 0.5, "rows": rows}}
    cells = [_cell(eps, 0, 1.0, attack, **more) for eps in (0.02, 0.0) for attack, more in ((None, {}), ("mcr", curve))]
    assert [line.label for line in curves(of_cells(cells), "t").lines] == ["eps-0.02 after MCR", "eps-0.0 after MCR"]
    assert all(mark.seeds == 1 for line in curves(of_cells(cells), "t").lines for mark in line.marks)
    assert [line.label for line in curves(of_cells(cells), "eps").lines] == ["app", "app after MCR"]
    unnamed = [{**cell, "method": "app"} for cell in cells[:1]] + [{**cell, "method": "app"} for cell in cells[2:3]]
    for cell, network in zip(unnamed, ("one", "other"), strict=True):
        cell["architecture"] = network
    both = [*unnamed, *({**cell, "architecture": "third"} for cell in unnamed)]
    assert {line.label for line in curves(of_cells(both), "architecture").lines} == {"app", "app (eps 0)"}


def test_what_does_not_vary_or_is_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no records vary eps"):
        curves(of_cells([_cell(0.02, 0, 1.0)]), "eps")
    with pytest.raises(UnknownNameError, match="transparency"):
        curves([], "colour")
    (tmp_path / "x.json").write_text('{"cells": 3}')
    with pytest.raises(DamagedFileError, match="cells"):
        read_measurements([tmp_path / "x.json"])
    (tmp_path / "x.json").write_text(json.dumps({"preset": "p", "cells": [_cell(0.02, 0, 1.0)]}))
    assert len(read_measurements([tmp_path / "x.json"])) == 1


def test_run_folders_are_records_too(tmp_path: Path) -> None:
    keys = [Key.create(classes=10, shape=(1, 28, 28), target=3, secret=SECRET, size=size) for size in (0.8, 1.0)]
    for number, key in enumerate(keys):
        parent = make_run(tmp_path / f"v{number}", key=key, metrics={"ba": 0.8, "wsr": 0.9})
        verdict = make_verdict(owned=True, wsr=0.5 + number / 10, p_value=0.0, ba=0.7)
        make_run(tmp_path / f"v{number}-ft", "ft", verb="attack", parent=parent, verdict=verdict)
    made = curves(read_measurements([tmp_path]), "size")
    assert {line.label: [(mark.at, mark.wsr) for mark in line.marks] for line in made.lines} == {
        "vanilla": [(0.8, 0.9), (1.0, 0.9)],
        "vanilla after FT": [(0.8, 0.5), (1.0, 0.6)],
    }
