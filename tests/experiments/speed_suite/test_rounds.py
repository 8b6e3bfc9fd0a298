"""The speed measurement on a tiny network: every case, and rounds that are kept and gone on with."""

import json
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from indelible.base.errors import InputError, UnknownNameError
from indelible.embedding.app import AdversarialPerturbation
from indelible.embedding.cw import CertifiedTraining
from speed import main
from speed_suite.other_work import attacks_round, verify_round
from speed_suite.rounds import PARTS, Unit, choose_units, measure_units
from speed_suite.steps import (
    APP_CASES,
    CASES,
    Scene,
    memory_round,
    noisy_passes_a_step,
    passes_a_step,
    steps_round,
)

TINY = Scene(network="resnet-mini", shape=(1, 28, 28), batch_size=8)


def counting(values: Iterator[float]) -> Unit:
    """A unit whose rounds are the given numbers."""
    return Unit(
        part="app", network="made-up", base="plain", value="seconds a step", rounds=3,
        settings={"part": "app", "network": "made-up"},
        prepare=lambda: lambda _known: iter([("plain", 1.0), ("other", next(values))]),
    )  # fmt: skip


def test_every_case_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that counts the rows through the last layer: plain 8; APP 2 (64 + 8) more, or less every few steps.

    Balanced adds 2 (16 + 8) every second step, light and c-BN only make one pass: 16 + 8 every third step, 64 + 8.
    CW makes 2,001 noisy passes of 64 rows in the 5,000 steps of an epoch.
    """
    monkeypatch.setattr("speed_suite.steps._LEAST_SECONDS", 0.0)
    passed: list[int] = []

    def count(layer: nn.Module, given: tuple[Tensor, ...], _: object) -> None:
        if isinstance(layer, nn.Linear):
            passed.append(len(given[0]))

    def rows_of(work: Callable[[], object], _: torch.device) -> float:
        passed.clear()
        work()
        return float(sum(passed))

    monkeypatch.setattr("speed_suite.steps.seconds_of", rows_of)
    hook = nn.modules.module.register_module_forward_hook(count)
    try:
        app, others = (dict(steps_round(TINY, cases)(())) for cases in CASES.values())
    finally:
        hook.remove()
    assert (tuple(app), tuple(others)) == tuple(CASES.values())
    assert app == {"plain": 8, "data pipeline": 0, "APP exact": 152, "APP balanced": 32, "APP light": 16}
    assert others == pytest.approx({"plain": 8, "Vanilla": 8, "EW": 8, "CW": 8 + 64 * 2001 / 5000, "c-BN only": 80})


def test_noisy_passes_by_hand() -> None:
    """One pass without noise and 20 levels of 100 draws, over 313 steps of 128 images."""
    assert noisy_passes_a_step(128) == pytest.approx(2001 / 313)
    assert noisy_passes_a_step(40_000, CertifiedTraining(levels=3, draws=2, batches=2)) == 10


def test_passes_that_begin_late_weigh_by_their_share_of_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step with passes that takes 5 beside a plain one of 2, in a quarter of the training: 2 + 3 / 4."""
    late = AdversarialPerturbation(rows=4, clean_rows=4, after=0.75)
    monkeypatch.setitem(APP_CASES, "APP light", late)
    monkeypatch.setattr("speed_suite.steps._LEAST_SECONDS", 0.0)
    # The first reading tells how often to repeat; then plain and APP light.
    readings = iter([2.0, 2.0, 5.0])
    monkeypatch.setattr("speed_suite.steps.seconds_of", lambda *_: next(readings))
    assert dict(steps_round(TINY, ["plain", "APP light"])(())) == {"plain": 2.0, "APP light": 2.75}
    assert [passes_a_step(case, 128) for case in ("plain", "EW", "APP exact", "APP light")] == [1, 1, 1, 0.25]


def ten_seconds(work: Callable[[], object], _: torch.device) -> float:
    """Do the work; it took ten seconds."""
    work()
    return 10.0


def test_verification_by_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 images for the accuracy, and the key's mark and two decoys on the 58 that are not of its class."""

    monkeypatch.setattr("speed_suite.other_work.seconds_of", ten_seconds)
    assert int((TINY.data.labels == 0).sum()) == 6
    expected = {"forward pass": 10 / 64, "verification": 10 / (64 + 3 * 58)}
    assert dict(verify_round(TINY)(())) == pytest.approx(expected)


def test_attacks_by_image_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has 8 images; of 64 FT makes one epoch; six strengths of JPEG, the model and five transforms judge all."""
    monkeypatch.setattr("speed_suite.other_work.seconds_of", ten_seconds)
    found = dict(attacks_round(TINY, ["ft", "preprocess"])(()))
    assert found == pytest.approx({"plain": 10 / 8, "FT": 10 / 64, "PREPROCESS": 10 / (12 * 64)})


def test_rounds_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    def broken() -> Iterator[float]:
        yield 2.0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_units([counting(broken())], tmp_path)
    [entry] = measure_units([counting(iter([3.0, 4.0]))], tmp_path)
    assert [one["other"] for one in entry["rounds"]] == [2.0, 3.0, 4.0]
    [same] = measure_units([counting(iter([]))], tmp_path)  # nothing left to measure
    assert same == entry
    [anew] = measure_units([counting(iter([5.0, 6.0, 7.0]))], tmp_path, again=True)
    assert [one["other"] for one in anew["rounds"]] == [5.0, 6.0, 7.0]


def test_what_is_measured_once_goes_on_case_by_case(tmp_path: Path) -> None:
    asked: list[str] = []

    def measure(known: Container[str], *, fails: bool) -> Iterator[tuple[str, float]]:
        for case in ("plain", "EW"):
            if case not in known:
                asked.append(case)
                yield case, 2.0
            if fails:
                raise KeyboardInterrupt

    def unit(*, fails: bool) -> Unit:
        return replace(counting(iter([])), part="memory", rounds=1, prepare=lambda: partial(measure, fails=fails))

    with pytest.raises(KeyboardInterrupt):
        measure_units([unit(fails=True)], tmp_path)
    [entry] = measure_units([unit(fails=False)], tmp_path)
    assert entry["rounds"] == [{"plain": 2.0, "EW": 2.0}]
    assert asked == ["plain", "EW"]


def test_memory_by_case() -> None:
    """APP holds a copy of the weights and the gradients beside the activations of a batch that is larger here."""
    found = dict(memory_round(TINY)(["EW", "CW", "c-BN only", "Vanilla"]))
    assert list(found) == ["plain", "APP exact", "APP balanced", "APP light"]
    assert found["plain"] < found["APP balanced"] < found["APP exact"]


def test_rounds_under_other_settings_are_not_mixed(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    [one] = choose_units(["app"], ["resnet-mini"], rounds=1)
    [other] = choose_units(["app"], ["resnet-mini"], rounds=1, batch_size=64)
    for unit in (one, other):
        measure_units([replace(unit, prepare=lambda: lambda _known: iter([("plain", 1.0)]))], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_parts_and_networks() -> None:
    names = [unit.name for unit in choose_units(PARTS, ["resnet-18", "resnet-mini"])]
    assert names == [
        "app-resnet-18", "app-resnet-mini", "methods-resnet-18", "methods-resnet-mini", "memory-resnet-18",
        "memory-resnet-mini", "attacks-resnet-mini", "verify-resnet-mini", "grid-resnet-mini",
    ]  # fmt: skip
    with pytest.raises(UnknownNameError, match="methods"):
        choose_units(["steps"])
    with pytest.raises(InputError, match="round"):
        choose_units(rounds=0)


def test_run_and_check_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, table = tmp_path / "speed.json", tmp_path / "speed.md"
    words = ["--parts", "verify", "--networks", "resnet-mini", "--batch-size", "4", "--rounds", "1"]
    words += ["--folder", str(tmp_path / "rounds"), "--threads", "1"]
    assert main([*words, "--out", str(out), "--table", str(table)]) == 0
    assert "queries/s" in capsys.readouterr().out
    assert "| verification" in table.read_text()
    # The rounds are there: the check measures nothing and finds what was committed.
    assert main(["--check", *words, "--baseline", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True
    committed = json.loads(out.read_text())
    for row in committed["rows"]:
        row.update(ratio=row["ratio"] / 2, high=row["high"] / 2)
    out.write_text(json.dumps(committed))
    assert main(["--check", *words, "--baseline", str(out)]) == 1
    assert "SLOWER verify, resnet-mini, verification" in capsys.readouterr().out
