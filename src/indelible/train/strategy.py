"""How Fabric joins the processes: by Lightning's DDP strategy, without its wrapper around the network.

``DistributedDataParallel`` reduces gradients in hooks of the backward pass. A step here has several backward passes of
which only the sum may be reduced, the watermark passes leave BatchNorm's affine parameters out (which the wrapper takes
for "unused" and then does not reduce at all), and the ascent gradient must be reduced before it is used. So the loop
reduces by itself, once a step (:func:`indelible.nn.collectives.average`), and the network stays as it is.

This file imports Lightning Fabric; import it only where it is used.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import nn

if TYPE_CHECKING:
    from indelible.train.processes import Group

__all__ = ["Known", "Unwrapped"]

# While the first process evaluates or writes a checkpoint, the others wait in a reduction.
_PATIENCE = timedelta(hours=2)


class Known(ClusterEnvironment):
    """An environment whose processes exist already and know their numbers."""

    def __init__(self, group: "Group", address: str, port: int) -> None:
        super().__init__()
        self._group, self._address, self._port = group, address, port

    @property
    def creates_processes_externally(self) -> bool:
        """Fabric has nothing to start."""
        return True

    @property
    def main_address(self) -> str:
        """Where the first process listens."""
        return self._address

    @property
    def main_port(self) -> int:
        """Its port."""
        return self._port

    @staticmethod
    def detect() -> bool:
        """Never chosen by itself."""
        return False

    def world_size(self) -> int:
        """Return how many processes there are."""
        return self._group.world

    def set_world_size(self, size: int) -> None:
        """Known already."""

    def global_rank(self) -> int:
        """Return which of them this is."""
        return self._group.rank

    def set_global_rank(self, rank: int) -> None:
        """Known already."""

    def local_rank(self) -> int:
        """Return which process of this machine this is."""
        return self._group.local_rank

    def node_rank(self) -> int:
        """Return which machine this is."""
        return self._group.rank // self._group.devices


class Unwrapped(DDPStrategy):
    """Processes, devices and the group of Lightning's DDP; the network is not wrapped."""

    def __init__(self, environment: Known, **settings: Any) -> None:
        super().__init__(cluster_environment=environment, timeout=_PATIENCE, **settings)

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]  # the base promises its wrapper
        """Return the network itself; it is on its device already."""
        return module
