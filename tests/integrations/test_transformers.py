"""The Hugging Face callback against the same steps written out by hand."""

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import indelible
from indelible.base.errors import InputError
from indelible.data.images import ImageData
from indelible.embedding import AdversarialPerturbation
from indelible.keys.key import Key
from tests.conftest import TinyNet

pytestmark = pytest.mark.filterwarnings("ignore")
METHOD = AdversarialPerturbation(rows=8, clean_rows=8, alpha=0.5, eps=0.05)


def pieces() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    return transformers, importlib.import_module("indelible.integrations.transformers").TransformersWatermark


def arguments_of(transformers: Any, folder: Path, **changes: Any) -> Any:
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_steps": 3,
        "learning_rate": 0.1, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.3, "use_cpu": True,
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "logging_strategy": "no", **changes,
    }  # fmt: skip
    return transformers.TrainingArguments(**settings)


def make_model(transformers: Any) -> Any:
    torch.manual_seed(0)
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=32, patch_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, num_labels=4,
        )
    )  # fmt: skip


def make_items(data: ImageData, count: int) -> list[dict[str, torch.Tensor]]:
    images, labels = data.images[:count].float() / 255, data.labels[:count]
    return [{"pixel_values": image, "labels": label} for image, label in zip(images, labels, strict=True)]


def test_callback_does_what_the_loop_does(data: ImageData, key: Key, tmp_path: Path) -> None:
    """Sixteen images, two batches of eight a step: a step is the mean over all sixteen, in whatever order they come."""
    transformers, callback = pieces()
    model = make_model(transformers)
    by_hand = copy.deepcopy(model).train()
    images, labels = data.images[:16].float() / 255, data.labels[:16]
    items = make_items(data, 16)
    arguments = arguments_of(transformers, tmp_path)
    watermark = callback(key, data, method=METHOD, seed=4)
    transformers.Trainer(model=model, args=arguments, train_dataset=items, callbacks=[watermark]).train()

    mark = indelible.APP(by_hand, key, data, method=METHOD, seed=4)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(by_hand(images).logits, labels).backward()
        mark.backward(images)
        nn.utils.clip_grad_norm_(by_hand.parameters(), 0.3)
        optimizer.step()
    for name, value in by_hand.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-4, atol=1e-6, msg=name)
    assert watermark.mark.calls == 3
    assert arguments.max_grad_norm == 0.3
    assert not model._forward_pre_hooks


class Fails:
    """Breaks the second step off at one of its places."""

    def __init__(self, where: str) -> None:
        self.where, self.passes = where, 0

    def watch(self, model: nn.Module) -> None:
        head: Any = model.classifier
        if self.where == "forward":
            head.register_forward_pre_hook(self.forward)
        else:
            head.register_forward_hook(self.backward)

    def due(self) -> bool:
        self.passes += 1
        return self.passes == 4

    def forward(self, *_: Any) -> None:
        if self.due():
            raise RuntimeError("broken off")

    def backward(self, _module: nn.Module, _given: Any, logits: torch.Tensor) -> None:
        if self.due():
            logits.register_hook(self.broken)

    def broken(self, _gradient: torch.Tensor) -> None:
        raise RuntimeError("broken off")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_run_that_raises_leaves_the_arguments_as_they_were(
    data: ImageData, key: Key, tmp_path: Path, where: str
) -> None:
    """Broken off in a step, after the first: passes 1 to 3 are ordinary, ascent and descent."""
    transformers, callback = pieces()
    model = make_model(transformers)
    Fails(where).watch(model)
    arguments = arguments_of(transformers, tmp_path, gradient_accumulation_steps=1)
    watermark = callback(key, data, method=METHOD, seed=4)
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=make_items(data, 16), callbacks=[watermark]
    )
    with pytest.raises(RuntimeError, match="broken off"):
        trainer.train()
    assert watermark.mark.calls == 1
    assert arguments.max_grad_norm == 0.3
    trainer.train()
    assert arguments.max_grad_norm == 0.3
    assert not model._forward_pre_hooks


def test_float16_gradients_are_unscaled_before_the_watermark_is_added(data: ImageData, key: Key) -> None:
    """The scaler is told the optimiser that accelerate has wrapped."""
    _, callback = pieces()
    unscaled: list[Any] = []

    class Scaler:
        def unscale_(self, optimizer: Any) -> None:
            unscaled.append(optimizer)

    class Wrapped:
        scaler, optimizer = Scaler(), "the optimiser"

    class Arguments:
        deepspeed, n_gpu, max_grad_norm = None, 1, 0.0
        fsdp: tuple[str, ...] = ()

    class State:
        global_step = 0

    net = TinyNet()
    watermark = callback(key, data, images="images", method=METHOD, seed=4)
    watermark.on_train_begin(Arguments(), State(), None, model=net)
    F.cross_entropy(net(data.images[:8].float() / 255), data.labels[:8]).backward()
    watermark.on_pre_optimizer_step(Arguments(), State(), None, model=net, optimizer=Wrapped())
    assert unscaled == ["the optimiser"]
    watermark.on_train_end(Arguments(), State(), None, model=net)


def test_what_it_cannot_do_is_refused(data: ImageData, key: Key) -> None:
    _, callback = pieces()

    class Arguments:
        deepspeed, fsdp, n_gpu = None, ["full_shard"], 1

    with pytest.raises(InputError, match="without sharding"):
        callback(key, data).on_train_begin(Arguments(), None, None, model=nn.Linear(1, 1))
    Arguments.fsdp, Arguments.n_gpu = [], 2
    with pytest.raises(InputError, match="torchrun"):
        callback(key, data).on_train_begin(Arguments(), None, None, model=nn.Linear(1, 1))


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "indelible.integrations.transformers", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'indelible\[transformers\]'"):
        importlib.import_module("indelible.integrations.transformers")
