"""Two gloo processes on the CPU against one process on the joined batch, in double precision."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import indelible
from indelible.attacks import ATTACKS
from indelible.base.errors import InputError
from indelible.base.files import read_json
from indelible.base.progress import silenced
from indelible.data.share import Share
from indelible.train.history import TIME_FIELDS
from indelible.train.loop import CHECKPOINT
from indelible.train.processes import joined, must_start, spread
from tests.conftest import stripes
from tests.train import group

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that two processes do, done once."""
    folder = tmp_path_factory.mktemp("pair")
    with silenced():
        for name in group.RESUMED:
            alone = folder / f"stopped by one, {name}"
            assert group.resumable(name, alone, stop=True) is None
            assert (alone / CHECKPOINT).exists()
        spread(group.work, devices=2, folder=folder)
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


@pytest.mark.parametrize("case", [*group.CASES, "own loop"])
def test_both_processes_end_with_the_same_bits(pair: Path, case: str) -> None:
    first, second = (load_file(pair / f"{case}-{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("case", group.SAME_AS_ONE)
def test_two_processes_do_what_one_does_on_the_joined_batch(pair: Path, case: str) -> None:
    make = group.ONE_PROCESS_NET.get(case)
    alone = group.run_case(case, None if make is None else make())
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
    alone = group.run_attack(name).state_dict()
    start = group.plain_net().float().state_dict()
    assert any(not torch.allclose(alone[part], start[part], atol=1e-3) for part in start), "it did train"
    for rank in (0, 1):
        together = load_file(pair / f"{name}-{rank}.safetensors")
        for part, value in alone.items():
            torch.testing.assert_close(together[part], value, rtol=1e-4, atol=1e-5, msg=part)


def test_the_other_attacks_say_why_one_process_does_them(pair: Path) -> None:
    said = read_json(pair / "said-0.json")["alone"]
    assert set(said) == set(ATTACKS) - set(group.ATTACKS)
    assert all("runs in one process: it chooses its strength" in message for message in said.values())
    student = ATTACKS["distill"].build(architecture="resnet-w8")
    assert "returns another network (resnet-w8)" in student.alone()


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


def test_synchronised_statistics_are_those_of_the_joined_rows(pair: Path) -> None:
    torch.manual_seed(0)
    rows = torch.randn(7, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    layer = nn.BatchNorm2d(3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
    y = layer(rows)
    (y**3).sum().backward()
    assert rows.grad is not None
    for rank in (0, 1):
        found = load_file(pair / f"statistics-{rank}.safetensors")
        share = Share(rank, 2)
        torch.testing.assert_close(found["y"], share.of(y.detach()))
        torch.testing.assert_close(found["x"], share.of(rows.grad))
        torch.testing.assert_close(found["mean"], layer.running_mean)
        torch.testing.assert_close(found["var"], layer.running_var)


def test_a_call_with_devices_brings_the_model_back(pair: Path, tmp_path: Path) -> None:
    """From the caller's side nothing differs from one process, except that the record says so."""
    net = group.bn_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    arguments: dict[str, Any] = {"key": group.key(), "train": group.SETTINGS, "device": "cpu", "seed": 3, **group.APP}
    done = indelible.embed(net, group.DATA, devices=2, folder=tmp_path, test=stripes(20, seed=1), **arguments)
    assert type(done.model) is type(net)
    assert done.model.training == net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    expected = load_file(pair / "per process-0.safetensors")
    assert all(torch.equal(value, expected[name]) for name, value in done.model.state_dict().items())
    assert done.record.settings["devices"] == 2
    assert done.record.metrics["wsr_embedded"] >= 0
    assert (tmp_path / "history.jsonl").exists()


class Refused(nn.Module):
    """Made for another number of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 32 * 32, 7)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


def test_refusals_come_back_as_they_are() -> None:
    with pytest.raises(InputError, match="7 outputs"):
        indelible.attack(Refused(), group.DATA, devices=2, device="cpu")

    class Local(Refused):
        pass

    with pytest.raises(InputError, match="torchrun"):
        indelible.attack(Local(), group.DATA, devices=2, device="cpu")
    with pytest.raises(InputError, match="devices must be at least 1, but is 0"):
        indelible.attack(Refused(), group.DATA, devices=0)
    with pytest.raises(InputError, match="MASTER_ADDR"):
        indelible.attack(Refused(), group.DATA, nodes=2, device="cpu")


def test_one_process_alone_unless_more_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not must_start(None, None)
    assert not must_start(1, 1)
    assert must_start(2, None)
    assert must_start(None, 2)
    with joined() as here:
        assert here.world == 1
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert not must_start(2, None)
    with joined(devices=1) as here:
        assert here.world == 1
    with pytest.raises(InputError, match=r"devices=2 was asked for, but 4 processes"), joined(devices=2):
        pass


SMALL = [
    "--device", "cpu", "--data", "fashion-mini", "--train", "epochs=1", "--train", "max_steps=2",
    "--train", "batch_size=16", "--set", "rows=4", "--set", "clean_rows=4", "--json",
]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "indelible"]


def command(arguments: list[str], **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(
        arguments, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


@pytest.mark.slow
def test_commands_under_torchrun(tmp_path: Path) -> None:
    """One key, one folder, one document on standard output - from two processes."""
    out = tmp_path / "run"
    process = command([*TORCHRUN, "embed", "--out", str(out), *SMALL])
    said, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    assert said.count('"verb": "embed"') == 1
    run = indelible.Run.load(out)
    assert run.record.settings["devices"] == 2
    assert run.key().digest == run.record.inputs["key"]
    process = command([sys.executable, "-m", "indelible", "attack", str(out), "--devices", "2", "--set", "epochs=1",
                       "--set", "batch_size=1024", "--device", "cpu", "--json"])  # fmt: skip
    said, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    assert said.count('"verdict"') == 1
    again = command([sys.executable, "-m", "indelible", "embed", "--out", str(out), "--devices", "2", *SMALL])
    _, errors = again.communicate(timeout=500)
    assert again.returncode == 2
    assert "holds a finished run already" in errors


@pytest.mark.slow
def test_two_machines_that_meet(tmp_path: Path) -> None:
    """``--nodes 2`` on one machine: the same command twice, told apart by NODE_RANK."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    arguments = [sys.executable, "-m", "indelible", "embed", "--out", str(tmp_path / "run"), "--nodes", "2", *SMALL]
    both = [command(arguments, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NODE_RANK=str(node)) for node in (0, 1)]
    said = [process.communicate(timeout=500) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0].count('"verb": "embed"') == 1
    assert said[1][0] == ""
    assert indelible.Run.load(tmp_path / "run").record.settings["nodes"] == 2


@pytest.mark.slow
def test_ctrl_c_reaches_every_process_once(tmp_path: Path) -> None:
    out = tmp_path / "run"
    long = [text.replace("max_steps=2", "max_steps=100000").replace("epochs=1", "epochs=10000") for text in SMALL]
    process = command(
        [sys.executable, "-m", "indelible", "embed", "--out", str(out), "--devices", "2", *long,
         "--train", "checkpoint_seconds=0.5"]
    )  # fmt: skip
    began = time.monotonic()
    while not (out / CHECKPOINT).exists() and process.poll() is None and time.monotonic() - began < 300:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 130, errors
    assert (out / CHECKPOINT).exists()
