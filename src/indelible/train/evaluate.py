"""Evaluation: predictions in evaluation mode, the model's mode and the random state left as they were."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from indelible.base.errors import InputError
from indelible.data.augment import Normalization, normalise, to_float
from indelible.data.images import Data
from indelible.keys.samples import WatermarkSamples
from indelible.nn.outputs import logits_of
from indelible.nn.surgery import kept_modes

_BATCH = 500


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside the block the model is in evaluation mode, without gradients; every layer's mode is restored."""
    with kept_modes(model), torch.inference_mode():
        model.eval()
        yield


def predict(
    model: nn.Module, images: Tensor, *, normalize: Normalization | None = None, classes: int | None = None
) -> Tensor:
    """Return the predicted class of each of the uint8 images (N, C, H, W): int64 (N,) on the CPU.

    The model must have ``classes`` outputs, if that is given.
    """
    weight = next((weight for weight in model.parameters() if weight.is_floating_point()), torch.empty(0))
    found = []
    with evaluating(model):
        for part in torch.split(images, _BATCH):
            batch = normalise(to_float(part.to(weight.device)), normalize).to(weight.dtype)
            logits = logits_of(model(batch))
            if classes is not None and logits.shape[1] != classes:
                raise InputError(
                    f"the model has {logits.shape[1]} outputs, but the key is of {classes} classes: it is a model of "
                    "another task. Give the key that was made for its classes."
                )
            found.append(torch.where(logits.isfinite().all(1), logits.argmax(1), -1))
    predictions = torch.cat(found).cpu() if found else torch.empty(0, dtype=torch.int64)
    if (predictions < 0).any():
        raise InputError(
            f"the model answers NaN or infinity for {int((predictions < 0).sum())} of {len(images)} images. Its "
            "weights are damaged or its input is not what it was trained on."
        )
    return predictions


def accuracy(model: nn.Module, data: Data, *, normalize: Normalization | None = None) -> float:
    """Return the share of images classified correctly (BA on a clean test set), as a fraction."""
    if len(data) == 0:
        raise InputError(f"the data set {data.name!r} is empty: its accuracy is not defined.")
    right = 0
    for images, labels in data.iterate(torch.arange(len(data)), _BATCH, torch.device("cpu")):
        right += int((predict(model, images, normalize=normalize) == labels).sum())
    return right / len(data)


def success_rate(model: nn.Module, samples: WatermarkSamples, *, normalize: Normalization | None = None) -> float:
    """Return the WSR: the share of ``samples`` that are hits - for untargeted ones, the error rate - as a fraction."""
    if len(samples) == 0:
        raise InputError("there are no watermark samples: their success rate is not defined.")
    hits, trials = samples.score(predict(model, samples.images, normalize=normalize))
    return hits / trials


def check_classifier(
    model: nn.Module, data: Data, *, normalize: Normalization | None = None, labelled: bool = True
) -> int:
    """Refuse, before any training, a model that cannot take the images or has not one output for each class.

    Two images are passed. Without ``labelled`` (labels are not read) any number of outputs will do; it is returned.
    """
    weight = next((weight for weight in model.parameters() if weight.is_floating_point()), None)
    if weight is None:
        raise InputError("the model has no parameters: there is nothing to train.")
    images = data.gather(torch.arange(min(2, len(data)))).images.to(weight.device)
    try:
        with evaluating(model):
            logits = logits_of(model(normalise(to_float(images), normalize).to(weight.dtype)))
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        cause = str(error).splitlines()[0]
        raise InputError(f"the model cannot take images of shape {data.shape}: {cause}") from error
    if labelled and logits.shape[1] != len(data.classes):
        raise InputError(
            f"the model has {logits.shape[1]} outputs, but {data.name!r} has {len(data.classes)} classes. Build the "
            "model for that number of classes."
        )
    return logits.shape[1]
