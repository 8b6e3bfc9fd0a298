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
from indelible.keys.key import Key

pytestmark = pytest.mark.filterwarnings("ignore")
SETTINGS: dict[str, Any] = {"rows": 8, "clean_rows": 8, "alpha": 0.5, "eps": 0.05, "seed": 4}


def pieces() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    return transformers, importlib.import_module("indelible.integrations.transformers").Watermark


def arguments_of(transformers: Any, folder: Path, **changes: Any) -> Any:
    settings = {
        "output_dir": str(folder), "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_steps": 3,
        "learning_rate": 0.1, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.3, "use_cpu": True,
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "logging_strategy": "no", **changes,
    }  # fmt: skip
    return transformers.TrainingArguments(**settings)


def test_callback_does_what_the_loop_does(data: ImageData, key: Key, tmp_path: Path) -> None:
    """Sixteen images, two batches of eight a step: a step is the mean over all sixteen, in whatever order they come."""
    transformers, callback = pieces()
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            image_size=32, patch_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=16, num_labels=4,
        )
    )  # fmt: skip
    by_hand = copy.deepcopy(model).train()
    images, labels = data.images[:16].float() / 255, data.labels[:16]
    items = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels, strict=True)]
    arguments = arguments_of(transformers, tmp_path)
    watermark = callback(key, data, **SETTINGS)
    transformers.Trainer(model=model, args=arguments, train_dataset=items, callbacks=[watermark]).train()

    mark = indelible.APP(by_hand, key, data, **SETTINGS)
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
