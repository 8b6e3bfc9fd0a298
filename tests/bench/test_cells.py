"""Digests of cells: what decides a result changes them, and nothing else does."""

import hashlib
import json

import pytest

from indelible.base.errors import InputError
from indelible.bench.cells import BenchCell, plan_cells, select
from indelible.bench.preset import read_preset

TEXT = """title = "T"
data = "fashion-mini"
architectures = ["resnet-mini"]
seeds = [0]
curve_images = 100
[kinds.unrelated]
source = "mnist"
[train]
scale = "cpu"
[methods.app]
[attacks.nad]
[attacks.ft]
"""
INPUTS = {"fashion-mini": "d1", "mnist": "d2"}


def digests(text: str = TEXT, inputs: dict[str, str] | None = None) -> tuple[str, str]:
    """Return the digests of the model and of NAD."""
    cells = plan_cells(read_preset("x", text), inputs or INPUTS)
    found = {cell.attack: cell.digest for cell in cells}
    return found[None], found["nad"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("seeds = [0]", "seeds = [1]"),
        ('"resnet-mini"', '"resnet-w8"'),
        ("[train]", "[train]\nepochs = 3"),
        ("[train]", "[train]\nschedule = 'cosine'"),
        ("[methods.app]", "[methods.app]\nalpha = 0.2"),
        ("[kinds.unrelated]", "[kinds.unrelated]\ntarget = 3"),
        ("[kinds.unrelated]", "[kinds.unrelated]\nsource_class = 3"),
        ("seeds", "attacker = 0.3\nseeds"),
    ],
)
def test_a_changed_setting_is_another_model_and_another_attack(old: str, new: str) -> None:
    model, attack = digests(TEXT.replace(old, new))
    assert model != digests()[0]
    assert attack != digests()[1]


@pytest.mark.parametrize("name", ["fashion-mini", "mnist"])
def test_other_images_are_another_cell(name: str) -> None:
    model, attack = digests(inputs={**INPUTS, name: "other"})
    assert model != digests()[0]
    assert attack != digests()[1]


@pytest.mark.parametrize("new", ["[attacks.nad]\nbeta = 1.0", "[attacks.nad]\nprotocol = 'paper'"])
def test_a_changed_attack_keeps_its_model(new: str) -> None:
    model, attack = digests(TEXT.replace("[attacks.nad]", new))
    assert model == digests()[0]
    assert attack != digests()[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[methods.app]", "[methods.ours]\nmethod = 'app'"),
        ("[kinds.unrelated]", "[kinds.other]\nkind = 'unrelated'"),
        ("[attacks.nad]", "[attacks.nad]\nattack = 'nad'"),
        ("[train]", "[train]\nevaluate_every = 1\ncheckpoint_seconds = 1.0"),
        ("[methods.app]", "[methods.app]\neps = 0.005"),  # the default, said aloud
        ('title = "T"', 'title = "another"'),
    ],
)
def test_labels_looks_and_titles_change_nothing(old: str, new: str) -> None:
    assert digests(TEXT.replace(old, new)) == digests()


def test_the_digest_is_of_canonical_json() -> None:
    cells = {cell.attack: cell for cell in plan_cells(read_preset("x", TEXT), INPUTS)}
    model, attack = cells[None], cells["nad"]
    deciding = {**model.settings, "data": "d1", "format": 1, "verb": "embed"}
    deciding["key"] = {**model.settings["key"], "source": "d2"}
    deciding["train"] = {
        name: value
        for name, value in {**model.settings["train"], "sync_batchnorm": False}.items()  # as in format 1
        if name not in {"evaluate_every", "checkpoint_seconds"}
    }
    text = json.dumps(deciding, sort_keys=True, separators=(",", ":"))
    assert model.digest == hashlib.sha256(text.encode()).hexdigest()
    own = dict(attack.settings["attack_settings"])
    own["recipe"] = own.pop("protocol")  # its name in format 1
    deciding = {**attack.settings, "attack_settings": own, "format": 1, "verb": "attack", "model": model.digest}
    text = json.dumps(deciding, sort_keys=True, separators=(",", ":"))
    assert attack.digest == hashlib.sha256(text.encode()).hexdigest()
    assert BenchCell(**json.loads(json.dumps(attack.to_json()))) == attack


def test_selection_brings_the_models_along() -> None:
    text = TEXT.replace("[methods.app]", "[methods.app]\n[methods.vanilla]")
    cells = plan_cells(read_preset("x", text), INPUTS)
    chosen = select(cells, "*/app/nad/*")
    assert [cell.name for cell in chosen] == ["resnet-mini/unrelated/app/before/0", "resnet-mini/unrelated/app/nad/0"]
    assert select(cells, None) == cells
    with pytest.raises(InputError, match="no cell matches 'nothing'"):
        select(cells, "nothing")


def test_fine_tuning_comes_first_then_models_then_the_rest() -> None:
    cells = plan_cells(read_preset("x", TEXT.replace("[methods.app]", "[methods.app]\n[methods.vanilla]")), INPUTS)
    assert [(cell.method, cell.attack) for cell in cells] == [
        ("app", "ft"), ("vanilla", "ft"), ("app", None), ("vanilla", None), ("app", "nad"), ("vanilla", "nad"),
    ]  # fmt: skip
