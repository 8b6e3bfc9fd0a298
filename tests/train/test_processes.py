"""Two gloo processes on the CPU against one process on the joined batch, in double precision."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from indelible.attacks import ATTACKS
from indelible.base.files import read_json
from indelible.base.progress import silenced
from indelible.data.augment import Share
from indelible.train.history import TIME_FIELDS
from indelible.train.loop import CHECKPOINT
from tests.train import group
from tests.train.spread import spread

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that two processes do, done once."""
    folder = tmp_path_factory.mktemp("pair")
    with silenced():
        for name in group.RESUMED:
            alone = folder / f"stopped by one, {name}"
            assert group.resumable(name, alone, stop=True) is None
            assert (alone / CHECKPOINT).exists()
        spread(group.work, folder, devices=2)
    return folder


def close(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-6, atol=1e-6, msg=name)


def same_rows(found: Any, expected: Any) -> None:
    """Compare two histories, all but their times."""
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - set(TIME_FIELDS):
            assert one[name] == pytest.approx(other[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("case", [*group.CASES, "own loop"])
def test_both_processes_end_with_the_same_bits(pair: Path, case: str) -> None:
    first, second = (load_file(pair / f"{case}-{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("case", group.SAME_AS_ONE)
def test_two_processes_do_what_one_does_on_the_joined_batch(pair: Path, case: str) -> None:
    alone = group.run_case(case)
    together = load_file(pair / f"{case}-0.safetensors")
    close(together, dict(alone.model.state_dict()))
    start = group.CASES[case]()[0].state_dict()
    assert any(not torch.allclose(together[name], start[name], atol=1e-3) for name in together), "it did train"
    rows = read_json(pair / "said-0.json")[case]["history"]
    same_rows(rows, alone.history)


def test_statistics_of_each_process_are_its_own_by_default(pair: Path) -> None:
    alone = group.run_case("per process").model.state_dict()
    together = load_file(pair / "per process-0.safetensors")
    assert not torch.allclose(together["features.0.weight"], alone["features.0.weight"], atol=1e-6)


def test_own_loop_with_distributed_data_parallel(pair: Path) -> None:
    alone = group.plain_net()
    group.own_loop(alone, Share())
    close(load_file(pair / "own loop-0.safetensors"), dict(alone.state_dict()))


@pytest.mark.parametrize("name", group.ATTACKS)
def test_attacks_that_only_train_give_what_one_process_gives(pair: Path, name: str) -> None:
    alone = group.run_attack(name).model.state_dict()
    start = group.plain_net().float().state_dict()
    assert any(not torch.allclose(alone[part], start[part], atol=1e-3) for part in start), "it did train"
    for rank in (0, 1):
        together = load_file(pair / f"{name}-{rank}.safetensors")
        for part, value in alone.items():
            torch.testing.assert_close(together[part], value, rtol=1e-4, atol=1e-5, msg=part)


def test_the_other_attacks_say_why_one_process_does_them(pair: Path) -> None:
    said = read_json(pair / "said-0.json")["alone"]
    assert set(said) == set(ATTACKS) - set(group.ATTACKS)
    assert all("runs in one process: it tries several strengths" in message for message in said.values())


def test_a_student_of_another_network_is_what_one_process_gives(pair: Path) -> None:
    alone = group.run_attack("distill", architecture=group.STUDENT)
    assert alone.model.state_dict().keys() == group.student().state_dict().keys()
    for rank in (0, 1):
        assert read_json(pair / f"said-{rank}.json")["student"] == alone.architecture == group.STUDENT
        together = load_file(pair / f"student-{rank}.safetensors")
        for part, value in alone.model.state_dict().items():
            torch.testing.assert_close(together[part], value, rtol=1e-4, atol=1e-5, msg=part)


def test_a_refusal_is_the_same_in_every_process(pair: Path) -> None:
    for rank in (0, 1):
        assert "7 outputs" in read_json(pair / f"said-{rank}.json")["unfit"]


def test_a_step_has_no_useless_reductions(pair: Path) -> None:
    """One for the gradients (with the loss), and one for the ascent gradient of APP."""
    assert read_json(pair / "said-0.json")["reductions"] == {"vanilla": 1, "app": 2}


def test_every_process_knows_what_the_first_found(pair: Path) -> None:
    said = [read_json(pair / f"said-{rank}.json") for rank in (0, 1)]
    for case in group.CASES:
        assert said[0][case]["history"] == said[1][case]["history"]
        assert said[0][case]["record"]["metrics"] == said[1][case]["record"]["metrics"]
        assert said[0][case]["record"]["settings"]["devices"] == 2
    for one in said:
        assert one["first"] == {"rank": 0}
        assert one["agree"] == [True, False]
        assert one["refused"] == "the first process says no."


@pytest.mark.parametrize("case", group.RESUMED)
def test_interrupting_one_process_stops_both_and_one_goes_on_alone(pair: Path, case: str) -> None:
    """From two processes to one."""
    assert all(read_json(pair / f"said-{rank}.json")["stopped"][case] for rank in (0, 1))
    folder = pair / f"stopped by two, {case}"
    assert (folder / CHECKPOINT).exists()
    rest, whole = group.resumable(case, folder), group.resumable(case, None)
    assert rest is not None
    assert whole is not None
    close(dict(rest.model.state_dict()), dict(whole.model.state_dict()))
    assert rest.record.images == whole.record.images
    same_rows(rest.history, whole.history)


@pytest.mark.parametrize("case", group.RESUMED)
def test_two_processes_go_on_from_the_checkpoint_of_one(pair: Path, case: str) -> None:
    """From one process to two; the fixture has stopped the one."""
    whole = group.resumable(case, None)
    assert whole is not None
    for rank in (0, 1):
        close(load_file(pair / f"continued by two, {case}-{rank}.safetensors"), dict(whole.model.state_dict()))
    same_rows(read_json(pair / "said-0.json")["rows"][case], whole.history)
    assert not (pair / f"stopped by one, {case}" / CHECKPOINT).exists()


def test_a_call_differs_from_one_process_in_its_record_alone(pair: Path) -> None:
    expected = load_file(pair / "per process-0.safetensors")
    for rank in (0, 1):
        seen = read_json(pair / f"said-{rank}.json")["in a folder"]
        assert seen["same class"]
        assert seen["same as before"]
        assert seen["devices"] == 2
        assert seen["wsr_embedded"] == pytest.approx(seen["hits"])
        assert seen["history"]
        found = load_file(pair / f"in a folder-{rank}.safetensors")
        assert all(torch.equal(value, expected[name]) for name, value in found.items())
