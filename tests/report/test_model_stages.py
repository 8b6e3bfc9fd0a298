"""From folders to entries: expansion, grouping, names in words."""

from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, InputError
from indelible.bench.measurement import run_folders
from indelible.report.model_stages import collect
from tests.report.runs import make_demo, make_run, make_verdict


def test_a_folder_of_runs_expands_to_the_runs_inside_and_each_comes_once(tmp_path: Path) -> None:
    demo = make_demo(tmp_path / "demo")
    names = ["app", "app-ft", "control", "control-ft", "unmarked", "vanilla", "vanilla-ft"]
    assert [folder.name for folder in run_folders([demo])] == names
    assert len(run_folders([demo, demo / "app"])) == 7


def test_attacks_stand_under_their_models_and_controls_are_named_in_words(tmp_path: Path) -> None:
    entries = collect([make_demo(tmp_path)])
    assert [entry.label for entry in entries] == ["Vanilla", "c-BN only (eps 0)", "APP with c-BN", "Unmarked model"]
    assert [[stage.column for stage in entry.after] for entry in entries] == [["FT"], ["FT"], ["FT"], []]
    assert [entry.marked for entry in entries] == [True, True, True, False]


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"eps": 0.02, "clean_bn": True}, "APP with c-BN"),
        ({"eps": 0.02, "clean_bn": False}, "APP only (no c-BN)"),
        ({"eps": 0.0, "clean_bn": True}, "c-BN only (eps 0)"),
        ({"eps": 0, "clean_bn": False}, "Extra exposure only (eps 0, no c-BN)"),
    ],
)
def test_the_four_rows_of_the_ablation_have_names(tmp_path: Path, settings: dict[str, object], label: str) -> None:
    assert collect([make_run(tmp_path / "run", "app", settings=settings)])[0].label == label


def test_the_model_of_an_attack_comes_along(tmp_path: Path) -> None:
    demo = make_demo(tmp_path)
    (entry,) = collect([demo / "app-ft"])
    assert entry.label == "APP with c-BN"
    assert entry.before is not None
    assert entry.before.wsr == 1.0


def test_an_attack_whose_model_is_gone_is_still_shown(tmp_path: Path) -> None:
    lost = make_run(tmp_path / "lost-ft", "ft", verb="attack", parent=tmp_path / "gone")
    (entry,) = collect([lost])
    assert entry.before is None
    assert entry.label.startswith("lost-ft (")


def test_equal_methods_are_told_apart_by_seed_or_else_by_folder(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"seed-{seed}" / "v", seed=seed) for seed in (0, 1)]
    assert [entry.label for entry in collect(runs)] == ["Vanilla, seed 0", "Vanilla, seed 1"]
    runs = [make_run(tmp_path / name) for name in ("first", "second")]
    assert [entry.label for entry in collect(runs)] == ["Vanilla, first", "Vanilla, second"]


def test_attacks_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    model = make_run(tmp_path / "v")
    for lr in (0.05, 0.01):
        settings = {"protocol": "sound", "lr": lr}
        make_run(tmp_path / f"v-ft-{lr}", "ft", verb="attack", settings=settings, parent=model)
    make_run(tmp_path / "v-ft-again", "ft", verb="attack", settings=settings, parent=model, seed=7)
    (entry,) = collect([tmp_path])
    assert sorted(str(stage.column) for stage in entry.after) == [
        "FT (lr 0.01), seed 0",
        "FT (lr 0.01), seed 7",
        "FT (lr 0.05)",
    ]


def test_a_verdict_has_the_last_word_over_training(tmp_path: Path) -> None:
    verdict = make_verdict(owned=True, wsr=0.75, p_value=1e-9)
    (entry,) = collect(
        [make_run(tmp_path / "v", metrics={"ba": 0.5, "wsr": 0.9, "wsr_embedded": 1.0}, verdict=verdict)]
    )
    assert entry.before is not None
    assert (entry.before.ba, entry.before.wsr, entry.before.wsr_embedded) == (0.5, 0.75, 1.0)


def test_what_is_not_a_run_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run"):
        collect([tmp_path / "nothing"])
    with pytest.raises(InputError, match="no finished run"):
        collect([tmp_path])
    with pytest.raises(InputError, match="at least one run"):
        collect([])


def test_a_damaged_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="v must have a number 'wsr', got 'high'"):
        collect([make_run(tmp_path / "v", metrics={"wsr": "high"})])
