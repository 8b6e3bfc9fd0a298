"""Checkpoints: one safetensors file with model, optimiser, random state and history; written whole or not at all.

A checkpoint belongs to one run: it carries a digest of the run's settings and refuses to continue another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_tensors, write_tensors

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The whole state of a run between two steps."""

    tensors: Mapping[str, Tensor]  # under ``model.``, ``optimizer.``, ``random.`` and ``loop.``
    meta: Mapping[str, Any]  # step, history, seconds and the run's fingerprint

    def part(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of one part, without its prefix."""
        return {key[len(name) + 1 :]: value for key, value in self.tensors.items() if key.startswith(f"{name}.")}


def capture(model: nn.Module, optimizer: Optimizer, **parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Collect all tensors that a resumed run needs: those of model, optimiser, generators and further ``parts``."""
    parts |= {"model": model.state_dict(), "random": {"torch": torch.get_rng_state()}}
    if torch.cuda.is_available():
        parts["random"] = {**parts["random"], "cuda": torch.cuda.get_rng_state()}
    tensors = {f"{part}.{name}": tensor for part, held in parts.items() for name, tensor in held.items()}
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if value is not None:
                tensors[f"optimizer.{index}.{name}"] = torch.as_tensor(value)
    return tensors


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Replace the checkpoint at ``path``."""
    write_tensors(path, tensors, {"format": _FORMAT, **meta})


def read_checkpoint(path: Path, fingerprint: str) -> Checkpoint | None:
    """Read a checkpoint; None when there is none. One of a run with other settings is refused."""
    if not path.exists():
        return None
    tensors, meta = read_tensors(path)
    if meta.get("format") != _FORMAT or not isinstance(meta.get("step"), int):
        raise DamagedFileError(f"{path} is not a checkpoint of format {_FORMAT}. Delete it to start again.")
    if meta.get("fingerprint") != fingerprint:
        raise InputError(
            f"{path} belongs to a run with other settings, data or key. Choose another folder, or delete it to start "
            "again."
        )
    return Checkpoint(tensors, meta)


def load_state(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer, path: Path) -> None:
    """Put a checkpoint's state into model, optimiser and random generators."""
    try:
        model.load_state_dict(checkpoint.part("model"))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.part("optimizer").items():
            index, field = name.split(".", 1)
            state.setdefault(int(index), {})[field] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(checkpoint.tensors["random.torch"])
        if torch.cuda.is_available() and "random.cuda" in checkpoint.tensors:
            torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"])
    except (RuntimeError, KeyError, ValueError) as error:
        raise DamagedFileError(f"{path} does not fit the model ({error}). Delete it to start again.") from error
