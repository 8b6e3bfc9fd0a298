"""Starting processes: refusals, who starts them, and commands of several processes from outside."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch import Tensor, nn

import indelible
from indelible.base.errors import InputError
from indelible.train.loop import CHECKPOINT
from indelible.train.processes import joined, must_start
from tests.train import group
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.distributed


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
    with pytest.raises(InputError, match="devices must be at least 1, got 0"):
        indelible.attack(Refused(), group.DATA, devices=0)


def test_one_process_alone_unless_more_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not must_start(None)
    assert not must_start(1)
    assert must_start(2)
    with joined() as here:
        assert here.world == 1
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert not must_start(2)
    with joined(devices=1) as here:
        assert here.world == 1
    with pytest.raises(InputError, match=r"got devices=2, but 4 processes"), joined(devices=2):
        pass


SMALL = [
    "--device", "cpu", "--data", "fashion-mini", "--train", "epochs=1", "--train", "max_steps=2",
    "--train", "batch_size=16", "--set", "rows=4", "--set", "clean_rows=4", "--json",
]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TWO_HERE = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "indelible"]


def command(arguments: list[str], **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(
        arguments, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


@pytest.mark.slow
def test_commands_under_torchrun(tmp_path: Path) -> None:
    """One key, one folder, one document on standard output - from two processes."""
    out = tmp_path / "run"
    process = command([*TWO_HERE, "embed", "--out", str(out), *SMALL])
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert said.count('"verb": "embed"') == 1
    run = indelible.Run.load(out)
    assert run.record.settings["devices"] == 2
    assert run.key().digest == run.record.inputs["key"]
    weights: list[bytes] = []
    for start, two in ((TWO_HERE, []), ([sys.executable, "-m", "indelible"], ["--devices", "2"])):
        place = tmp_path / f"attacked-{len(weights)}"
        process = command([*start, "attack", str(out), "--out", str(place), *two, "--set", "epochs=1",
                           "--set", "batch_size=1024", "--device", "cpu", "--json"])  # fmt: skip
        said, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert said.count('"verdict"') == 1
        assert indelible.Run.load(place).record.settings["devices"] == 2
        weights.append((place / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    again = command([sys.executable, "-m", "indelible", "embed", "--out", str(out), "--devices", "2", *SMALL])
    _, errors = again.communicate(timeout=PATIENCE)
    assert again.returncode == 2
    assert "holds a finished run already" in errors


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_group_that_is_left_leaves_no_threads(tmp_path: Path) -> None:
    """A thread that outlives the interpreter may abort a process that has done its work."""
    script = tmp_path / "leave.py"
    script.write_text(
        "from pathlib import Path\n"
        "from indelible.train.devices import make_fabric\n"
        "from indelible.train.processes import disconnect, from_first, joined\n"
        "def threads():\n"
        "    return sum('gloo' in name.read_text() for name in Path('/proc/self/task').glob('*/comm'))\n"
        "with joined(device='cpu'):\n"
        "    make_fabric(device='cpu')\n"
        "    from_first(int)\n"
        "    assert threads() > 0, 'this test looks for the wrong threads'\n"
        "disconnect()\n"
        "assert threads() == 0, threads()\n"
    )
    process = command([*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(script)])
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors


@pytest.mark.slow
def test_two_machines_that_meet(tmp_path: Path) -> None:
    """torchrun's two machines on one: the same command twice, told apart by ``--node-rank``."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port]
    work = ["-m", "indelible", "embed", "--out", str(tmp_path / "run"), *SMALL]
    both = [command([*TORCHRUN, *meet, "--node-rank", str(node), *work]) for node in (0, 1)]
    said = [process.communicate(timeout=PATIENCE) for process in both]
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
    assert until(lambda: (out / CHECKPOINT).exists() or process.poll() is not None)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert (out / CHECKPOINT).exists()
