"""Commands of several processes, started by torchrun."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import indelible
from indelible.train.loop import CHECKPOINT
from indelible.train.processes import Group, joined, launched
from tests.train.spread import free_port
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.distributed


def test_one_process_alone_unless_torchrun_started_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as here:
        assert here.world == 1
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "RANK": "5", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == Group(rank=5, world=8, local_rank=1, devices=4)
    assert launched().nodes == 2
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert launched().local_rank == 3


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
    place = tmp_path / "attacked"
    process = command([*TWO_HERE, "attack", str(out), "--out", str(place), "--set", "epochs=1",
                       "--set", "batch_size=1024", "--device", "cpu", "--json"])  # fmt: skip
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert said.count('"verdict"') == 1
    assert indelible.Run.load(place).record.settings["devices"] == 2
    again = command([*TWO_HERE, "embed", "--out", str(out), *SMALL])
    said, errors = again.communicate(timeout=PATIENCE)
    assert again.returncode == 1, "torchrun's, when a process fails"
    assert "holds a finished run already" in said + errors


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
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
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
    process = command([*TWO_HERE, "embed", "--out", str(out), *long, "--train", "checkpoint_seconds=1e6"])
    assert until(lambda: (out / "history.jsonl").exists() or process.poll() is not None)
    assert not (out / CHECKPOINT).exists(), "only Ctrl-C writes one before days have passed"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert (out / CHECKPOINT).exists(), errors
