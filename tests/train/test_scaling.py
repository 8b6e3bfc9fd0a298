"""float16 scales the loss so that small gradients do not vanish; every gradient of a step must have the same scale.

A power of two scales without rounding, so a run with the scaler below gives the bits of a run without one - if no
gradient escapes it.
"""

import copy
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision, Precision
from torch import Tensor, nn
from torch.nn import functional as F

import indelible
from indelible.data.images import ImageData
from indelible.keys.key import Key
from indelible.train import CrossEntropy, TrainSettings, fit
from indelible.train.objective import Step
from tests.conftest import TinyNet, stripes
from tests.values import method_value

SCALE = 1024.0
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {}),
    "app": ("app", {"rows": 8, "clean_rows": 8, "alpha": 0.5, "eps": 0.1}),
    "cw": ("cw", {"levels": 3, "draws": 2, "rows": 4, "start_epoch": 0}),
    "ew": ("ew", {"epochs": 1}),
}


class Scaler:
    """What ``torch.amp.GradScaler`` does to a loss, to gradients and to a checkpoint."""

    def __init__(self) -> None:
        self.loaded: Any = None

    def scale(self, loss: Tensor) -> Tensor:
        return loss * SCALE

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.grad.div_(SCALE)

    def state_dict(self) -> dict[str, float]:
        return {"scale": SCALE}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.loaded = state


class Scaled(Precision):
    """float32 with a scaler: what Fabric does in float16, without its rounding."""

    def __init__(self) -> None:
        self.scaler = Scaler()

    def backward(self, tensor: Tensor, model: nn.Module | None, *args: Any, **kwargs: Any) -> None:
        self.scaler.scale(tensor).backward()

    def optimizer_step(self, optimizer: Any, **kwargs: Any) -> Any:
        self.scaler.unscale_(optimizer)
        return super().optimizer_step(optimizer, **kwargs)


def with_plugin(monkeypatch: pytest.MonkeyPatch, precision: Precision) -> None:
    monkeypatch.setattr(
        "indelible.train.loop.make_fabric", lambda **_: Fabric(accelerator="cpu", devices=1, plugins=[precision])
    )


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> Scaled:
    precision = Scaled()
    with_plugin(monkeypatch, precision)
    return precision


def run(net: nn.Module, key: Key, name: str) -> dict[str, Tensor]:
    method, settings = METHODS[name]
    train = {"epochs": 1, "batch_size": 16, "lr": 0.05}
    done = indelible.embed(
        net,
        stripes(48),
        key,
        method_value(method, key, "paper", fraction=0.2, **settings),
        scale="paper",
        train=train,
        device="cpu",
    )
    return dict(done.model.state_dict())


@pytest.mark.parametrize("name", METHODS)
def test_no_gradient_of_a_method_escapes_the_scaler(
    net: TinyNet, key: Key, name: str, request: pytest.FixtureRequest
) -> None:
    expected = run(net, key, name)
    request.getfixturevalue("scaled")
    found = run(net, key, name)
    for part, value in expected.items():
        assert torch.equal(found[part], value), part


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("name", METHODS)
def test_half_precision_goes_the_same_way(
    net: TinyNet, key: Key, name: str, precision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's own autocast and, for float16, its own scaler, on a CPU: the weights move as they do in float32."""
    exact = run(net, key, name)
    with_plugin(monkeypatch, MixedPrecision(precision, device="cpu"))
    rough = run(net, key, name)
    for part, start in net.named_parameters():
        moved, expected = rough[part] - start, exact[part] - start
        assert F.cosine_similarity(moved.flatten(), expected.flatten(), dim=0) > 0.9, part


def own_loop(net: nn.Module, mark: Any, data: ImageData, scaler: Scaler | None) -> list[Tensor]:
    images, labels = data.images[:16].float() / 255, data.labels[:16]
    loss = F.cross_entropy(net(images), labels)
    (loss if scaler is None else scaler.scale(loss)).backward()
    mark.backward(images, scaler=scaler)
    if scaler is not None:
        scaler.unscale_(torch.optim.SGD(net.parameters(), lr=0.1))
    return [weight.grad for weight in net.parameters() if weight.grad is not None]


@pytest.mark.parametrize("kind", ["app", "cw"])
def test_own_loops(net: TinyNet, data: ImageData, key: Key, kind: str) -> None:
    found = []
    for scaler in (None, Scaler()):
        own = copy.deepcopy(net).train()
        method = method_value(kind, key, "paper", **METHODS[kind][1])
        app = kind == "app"
        mark = (
            indelible.APP(own, key, data, method=method)
            if app
            else indelible.CW(own, key, data, steps=1, method=method)
        )
        found.append(own_loop(own, mark, data, scaler))
    for plain, through in zip(*found, strict=True):
        assert torch.equal(plain, through)


class Stops(CrossEntropy):
    """Interrupted in the first step."""

    def backward(self, step: Step) -> Tensor:
        signal.raise_signal(signal.SIGINT)
        return super().backward(step)


def test_a_checkpoint_holds_the_scale(net: TinyNet, data: ImageData, scaled: Scaled, tmp_path: Path) -> None:
    settings = TrainSettings(epochs=1, batch_size=64, lr=0.05)
    with pytest.raises(KeyboardInterrupt):
        fit(copy.deepcopy(net), data, settings, seed=0, objective=Stops(), folder=tmp_path)
    assert scaled.scaler.loaded is None
    fit(net, data, settings, seed=0, folder=tmp_path)
    assert scaled.scaler.loaded == {"scale": SCALE}
