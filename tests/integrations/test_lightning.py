"""The Lightning callback against the same steps written out by hand, in double precision."""

import copy
import importlib
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import indelible
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.embedding import AdversarialPerturbation
from indelible.keys.key import Key
from tests.conftest import TinyNet

pytestmark = pytest.mark.filterwarnings("ignore")
METHOD = AdversarialPerturbation(rows=8, clean_rows=8, alpha=0.5, eps=0.05)


def pieces() -> tuple[Any, Any]:
    lightning = pytest.importorskip("pytorch_lightning")
    return lightning, importlib.import_module("indelible.integrations.lightning").LightningWatermark


def module_of(lightning: Any, net: nn.Module, optimizers: int = 1) -> Any:
    class Module(lightning.LightningModule):  # type: ignore[misc]  # the base is not known to the checker
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            made = [torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9) for _ in range(optimizers)]
            return made[0] if optimizers == 1 else made

    module = Module()
    module.automatic_optimization = optimizers == 1
    return module


def trainer_of(lightning: Any, watermark: Any, **settings: Any) -> Any:
    return lightning.Trainer(
        max_epochs=1, callbacks=[watermark], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, precision="64-true", **settings,
    )  # fmt: skip


def test_callback_does_what_the_loop_does(net: TinyNet, data: ImageData, key: Key) -> None:
    """Two batches a step, gradients clipped: the watermark comes once a step, and before the clipping."""
    lightning, callback = pieces()
    net = net.double()
    by_hand = copy.deepcopy(net).train()
    images, labels = data.images[:96].double() / 255, data.labels[:96]
    loader = DataLoader(TensorDataset(images, labels), batch_size=16)
    watermark = callback(key, data, classifier=lambda module: module.net, method=METHOD, seed=4)
    module = module_of(lightning, net)
    trainer_of(lightning, watermark, accumulate_grad_batches=2, gradient_clip_val=0.5).fit(module, loader)

    mark = indelible.APP(by_hand, key, data, method=METHOD, seed=4)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        for half in range(2):
            rows = slice(32 * step + 16 * half, 32 * step + 16 * half + 16)
            (F.cross_entropy(by_hand(images[rows]), labels[rows]) / 2).backward()
        mark.backward(images[rows])
        nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
        optimizer.step()
    for name, value in by_hand.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, msg=name)
    assert watermark.mark.calls == 3


def test_what_it_cannot_do_is_refused(net: TinyNet, data: ImageData, key: Key) -> None:
    lightning, callback = pieces()
    loader = DataLoader(TensorDataset(data.images[:16].double() / 255, data.labels[:16]), batch_size=16)
    with pytest.raises(InputError, match="one optimiser, got 2"):
        trainer_of(lightning, callback(key, data)).fit(module_of(lightning, net, optimizers=2), loader)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "indelible.integrations.lightning", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'indelible\[lightning\]'"):
        importlib.import_module("indelible.integrations.lightning")
