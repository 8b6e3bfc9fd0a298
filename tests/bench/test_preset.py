"""Presets: what a file says becomes a grid; what it cannot say is refused by name."""

from pathlib import Path

import pytest

from indelible.base.errors import InputError, UnknownNameError
from indelible.bench.cells import plan_cells
from indelible.bench.preset import load_preset, preset_names, read_preset
from indelible.bench.reported import REPORTED_TABLES
from tests.bench.micro import known_preset

MINIMAL = """title = "T"
data = "fashion-mini"
architectures = ["resnet-mini"]
[kinds.content]
[methods.vanilla]
"""


@pytest.mark.parametrize("name", preset_names())
def test_every_shipped_preset_plans(name: str) -> None:
    preset = known_preset(name)
    sources = {str(variant.settings["source"]) for variant in preset.kinds if "source" in variant.settings}
    cells = plan_cells(preset, dict.fromkeys({preset.data, *sources}))
    grid = [
        1 + (len(preset.attacks) if method.attacks is None else len(method.attacks))
        for seed in preset.seeds
        for kind in preset.kinds
        for method in preset.methods
        if (kind.seeds is None or seed in kind.seeds) and (method.seeds is None or seed in method.seeds)
    ]
    assert len(cells) == sum(grid) * len(preset.architectures)
    assert preset.command.startswith(f"indelible bench run {name}")
    assert preset.reported is None or preset.reported in REPORTED_TABLES
    assert len({cell.name for cell in cells}) == len(cells)


def test_entries_with_seeds_and_attacks_of_their_own() -> None:
    text = """title = "T"
data = "fashion-mini"
architectures = ["resnet-mini"]
seeds = [1, 2]
[kinds.content]
[kinds.noise]
seeds = [2]
[methods.unmarked]
method = "vanilla"
fraction = 0.0
attacks = []
[methods.vanilla]
seeds = [1]
attacks = ["ft"]
[methods.app]
[attacks.ft]
[attacks.fp]
"""
    names = {
        cell.name.removeprefix("resnet-mini/") for cell in plan_cells(read_preset("t", text), {"fashion-mini": None})
    }
    assert names == {
        *(f"{kind}/unmarked/before/{seed}" for kind, seed in (("content", 1), ("content", 2), ("noise", 2))),
        "content/vanilla/before/1", "content/vanilla/ft/1",
        *(
            f"{kind}/app/{stage}/{seed}"
            for kind, seed in (("content", 1), ("content", 2), ("noise", 2))
            for stage in ("before", "ft", "fp")
        ),
    }  # fmt: skip
    with pytest.raises(UnknownNameError, match="unknown seed of 'noise' '3': choose one of 1, 2"):
        read_preset("t", text.replace("seeds = [2]", "seeds = [3]"))
    with pytest.raises(UnknownNameError, match="unknown attack on 'vanilla' 'fft': choose one of fp, ft"):
        read_preset("t", text.replace('["ft"]', '["fft"]'))
    with pytest.raises(InputError, match=r"\[methods.vanilla\] expected a list for attacks, got 'ft'"):
        read_preset("t", text.replace('["ft"]', '"ft"'))


def test_shared_settings_and_names() -> None:
    text = (
        MINIMAL
        + """
fraction = 0.03
[methods.control]
method = "app"
eps = 0.0
train = { epochs = 3 }
[method]
negatives = 0.1
[attack]
protocol = "paper"
[attacks.ft]
[attacks.gentle]
attack = "ft"
protocol = "sound"
lr = 0.001
[key]
target = 2
[train]
scale = "cpu"
lr = 0.3
"""
    )
    preset = read_preset("mine", "# indelible bench run mine --workers 4\n" + text)
    assert preset.command == "indelible bench run mine --workers 4"
    assert (preset.train_scale, dict(preset.train)) == ("cpu", {"lr": 0.3})
    vanilla, control = preset.methods
    assert (vanilla.name, dict(vanilla.settings)) == ("vanilla", {"negatives": 0.1, "fraction": 0.03})
    assert (control.label, control.name, dict(control.train)) == ("control", "app", {"epochs": 3})
    assert [(attack.name, dict(attack.settings)) for attack in preset.attacks] == [
        ("ft", {"protocol": "paper"}), ("ft", {"protocol": "sound", "lr": 0.001}),
    ]  # fmt: skip
    assert dict(preset.kinds[0].settings) == {"target": 2}
    models = [cell for cell in plan_cells(preset, {"fashion-mini": "d"}) if cell.attack is None]
    assert [cell.settings["train"]["epochs"] for cell in models] == [12, 3]
    assert {cell.settings["train"]["lr"] for cell in models} == {0.3}
    assert models[1].settings["method_settings"]["negatives"] == 0.1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = ", "is not TOML"),
        ('colour = "red"\n' + MINIMAL, "unknown key of the preset 'x' 'colour'"),
        (MINIMAL.replace('title = "T"\n', ""), "lacks title"),
        (MINIMAL.replace("[kinds.content]\n", ""), "names no kinds"),
        ('seeds = "0"\n' + MINIMAL, "'seeds' must be"),
        ("methods.vanilla = 3\n" + MINIMAL.replace("[methods.vanilla]\n", ""), "must be a table"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_preset("x", text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[methods.vanilla]", "[methods.vanila]"), "unknown embedding method 'vanila'"),
        (("[methods.vanilla]", "[methods.vanilla]\nepz = 1"), "epz"),
        (("[kinds.content]", "[kinds.contents]"), "unknown kind of mark 'contents'"),
        (("[kinds.content]", "[kinds.content]\ncolour = 1"), "unknown setting of a key 'colour'"),
        (("[methods.vanilla]", "[methods.vanilla]\n[attacks.ft]\nepochs = 'a'"), "'epochs' must be a whole number"),
        (("[methods.vanilla]", "[methods.vanilla]\n[train]\nscale = 'fast'"), "unknown scale 'fast'"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(change: tuple[str, str], said: str) -> None:
    preset = read_preset("x", MINIMAL.replace(*change))
    with pytest.raises(InputError, match=said):
        plan_cells(preset, {"fashion-mini": None})


def test_unknown_presets(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'smoke'"):
        load_preset("smok")
    with pytest.raises(InputError, match="no preset file"):
        load_preset(tmp_path / "none.toml")
