"""Files of weights: what is read from each kind, and what is refused without running anything."""

from pathlib import Path
from typing import Any

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_tensors
from indelible.base.weights import read_weights

WEIGHTS = {"a": torch.arange(3.0), "b": torch.ones(2, 2, dtype=torch.int64)}


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "net.pth", "net.PT"])
@pytest.mark.parametrize("inside", [None, "state_dict", "model_state_dict", "model", "weights"])
def test_every_kind_gives_the_same_tensors(tmp_path: Path, name: str, inside: str | None) -> None:
    path = tmp_path / name
    if name.endswith("safetensors"):
        write_tensors(path, WEIGHTS)
    else:
        torch.save(WEIGHTS if inside is None else {"epoch": 3, inside: WEIGHTS}, path)
    found = read_weights(path)
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(found[one], WEIGHTS[one]) and found[one].dtype == WEIGHTS[one].dtype for one in WEIGHTS)


@pytest.mark.parametrize(
    "content", [{}, [], 7, {"a": 1}, {1: torch.ones(1)}, {"epoch": 3, "state_dict": {}}, torch.ones(1)]
)
def test_what_holds_no_named_weights(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "net.pt")
    with pytest.raises(DamagedFileError, match="holds no named weights"):
        read_weights(tmp_path / "net.pt")


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"net\.pt does not exist"):
        read_weights(tmp_path / "net.pt")
    for name in ("net.safetensors", "net.bin"):
        (tmp_path / name).write_bytes(b"not weights")
        with pytest.raises(DamagedFileError, match=r"not a whole safetensors file .*\.pt or \.pth") as caught:
            read_weights(tmp_path / name)
        assert "delete" not in str(caught.value), "it is the user's only copy"
