"""The Ray engine on a real cluster of two nodes on this machine, one of which is lost in the middle."""

import time
from pathlib import Path
from typing import Any

import pytest

from indelible.base.errors import InputError
from indelible.bench.engines import RayEngine
from indelible.bench.runner import Board, run_cells
from indelible.bench.store import Store
from tests.bench.micro import cells_of, write_preset

ray = pytest.importorskip("ray")


def start_two_nodes() -> tuple[Any, Any]:
    """Start a cluster of two nodes of one core each; a machine too busy to start Ray in time is no failure of ours."""
    from ray.cluster_utils import Cluster

    lean = {"num_cpus": 1, "object_store_memory": 80_000_000}
    quick = {
        "health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 8,
        "worker_niceness": 0,  # Ray's 15 lets its workers starve beside other tests
    }  # fmt: skip
    cluster = None
    try:
        cluster = Cluster(
            initialize_head=True, head_node_args={**lean, "include_dashboard": False, "_system_config": quick}
        )
        # Connected while there is one node only: the driver must not hang on the node that will be lost.
        ray.init(address=cluster.address, log_to_driver=False)
        return cluster, cluster.add_node(**lean)
    except Exception as error:
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()
        if "timed out during startup" in str(error):
            pytest.skip("Ray did not start in time")
        raise


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.filterwarnings("default")  # Ray's own
def test_a_node_is_lost_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, doomed = tmp_path / "log", tmp_path / "doomed"
    log.touch()
    monkeypatch.setenv("MICRO_LOG", str(log))
    monkeypatch.setenv("MICRO_DOOMED", str(doomed))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{Path(__file__).parents[2] / 'src'}")
    preset = write_preset(tmp_path, change=("conftest:TinyNet", "bench.micro:LoggedNet"))
    _, cells = cells_of(preset)
    store = Store(tmp_path / "store")
    cluster, second = start_two_nodes()
    try:
        doomed.write_text(second.node_id)  # its first cell starts, and hangs
        removed: list[float] = []

        def tick() -> None:
            if not removed and second.node_id in log.read_text():
                cluster.remove_node(second, allow_graceful=False)
                removed.append(time.monotonic())

        board = Board(cells, tick=tick)
        run_cells(board, store, RayEngine(cluster.address), device="cpu")
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert removed
    assert set(board.states.values()) == {"done"}
    assert store.finished() == {cell.digest for cell in cells}
    # A cell builds its network twice, to work on and to be verified: each was done once, one begun on the lost node.
    builders = log.read_text().split()
    assert builders.count(second.node_id) == 1
    assert len(builders) == sum(1 + (cell.attack is not None) for cell in cells) + 1


def test_shares_are_checked() -> None:
    with pytest.raises(InputError, match="a cell needs CPUs or GPUs"):
        RayEngine(cpus=0.0)
