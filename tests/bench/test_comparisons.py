"""The comparisons of the appendix as cells: NTL's key, statistic and verdict, up to the record of an attack."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from indelible.bench.cells import plan_cells
from indelible.bench.preset import load_preset
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from indelible.keys.key import Key
from indelible.train.run_folder import Run
from tests.bench.micro import InlineEngine, cells_of, write_preset
from tests.conftest import stripes

METHODS = """[methods.ntl]
alpha = 1.0
beta = 3.0
alpha_mmd = 3.0
beta_mmd = 3.0

[methods.pgd-at]
steps = 1

[methods.trades]
steps = 1
"""


def digests(preset: str, *methods: str) -> dict[str, str]:
    found = load_preset(preset)
    found = replace(found, methods=tuple(one for one in found.methods if one.name in methods))
    return {cell.name: cell.digest for cell in plan_cells(found, defaultdict[str, None](lambda: None))}


@pytest.mark.parametrize(("scale", "table"), [("", "cifar10-paper"), ("-cpu", "cifar10-cpu")])
def test_models_and_attacks_are_shared_with_the_main_table(scale: str, table: str) -> None:
    main = digests(table, "vanilla", "app").items()
    shared = digests(f"adversarial-training{scale}", "vanilla", "app")
    assert len(shared) == 2 * 7
    assert shared.items() <= main
    rates = digests(f"ft-learning-rates{scale}", "app")
    assert {name: digest for name, digest in rates.items() if "/before/" in name}.items() <= main


def test_cells_of_the_comparisons(tmp_path: Path) -> None:
    _, cells = cells_of(write_preset(tmp_path, change=("[methods.vanilla]\n", METHODS)))
    wanted = [cell for cell in cells if cell.method in {"pgd-at", "trades", "ntl"}]
    wanted = [cell for cell in wanted if cell.attack is None or cell.method == "ntl"]
    store = Store(tmp_path / "store")
    run_cells(Board(wanted), store, InlineEngine(), device="cpu")
    records = {(cell.method, cell.attack): store.record(cell.digest) for cell in wanted}
    assert len(records) == 4
    before, after = records["ntl", None], records["ntl", "ft"]
    assert before is not None
    assert after is not None
    # The preset has a target class; NTL's key leaves it out.
    assert (before["inputs"]["labels"], before["inputs"]["target"]) == ("untargeted", None)
    digest = next(cell.digest for cell in wanted if (cell.method, cell.attack) == ("ntl", None))
    key, test = Key.load(store.reading(digest) / "key"), stripes(80, seed=1)
    assert key.labels == "untargeted"
    samples = key.samples(test, purpose="verify")
    for record in (before, after):
        measured, model = record["measured"], Run.load(store.reading(record["digest"])).model().eval()
        assert measured["trials"] == len(samples.images) == 80  # images of every class
        hits = int((model(samples.images.float() / 255).argmax(1) != test.labels[samples.carriers]).sum())
        assert (measured["hits"], measured["wsr"]) == (hits, hits / 80)
        assert measured["test"].startswith("McNemar")
    assert records["pgd-at", None] is not None
    assert records["trades", None] is not None
