"""A suspect from what a person writes down: an address or a path decides the kind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from indelible.base.errors import InputError
from indelible.data.augment import Normalization
from indelible.data.images import Shape
from indelible.verify.suspects.http import HttpSuspect, Persistence
from indelible.verify.suspects.oip import OpenInference
from indelible.verify.suspects.onnx import OnnxSuspect
from indelible.verify.suspects.predictions import PredictionFile
from indelible.verify.suspects.preprocessing import Preprocessing
from indelible.verify.suspects.protocol import Suspect
from indelible.verify.suspects.template import JsonTemplate
from indelible.verify.suspects.weights import PICKLED, weights_suspect

__all__ = ["open_suspect"]

_TABLES = (".csv", ".jsonl")


def open_suspect(
    place: str | Path,
    *,
    classes: int,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that people use
    model: Callable[[], nn.Module] | None = None,
    normalize: Normalization | None = None,
    input_name: str | None = None,
    output: str | None = None,
    shape: Shape | None = None,
    batch: int | None = None,
    headers: Mapping[str, str] | None = None,
    persistence: Persistence | None = None,
) -> Suspect:
    """Return the suspect at an address or path.

    Args:
        place: ``http(s)://HOST/v2/models/NAME`` (Open Inference); ``.json`` (a template of another JSON server);
            ``.onnx``; ``.safetensors``, ``.pt`` or ``.pth``; ``.csv`` or ``.jsonl`` (predictions, a query log).
        classes: Classes of the key.
        input: What a model behind an address or in an ONNX file takes: ``{"dtype": "uint8"}`` and what else
            :class:`~indelible.verify.suspects.preprocessing.Preprocessing` has. Described, never assumed.
        model: Builds the architecture of a file of weights.
        normalize: (mean, std) that the input of a file of weights is normalised by.
        input_name: Name of a server's input (Open Inference), if it declares several or none (default: the only one, or
            ``input-0``).
        output: Name of the output with labels or scores, if there are several.
        shape: (C, H, W) of the images, if known: what a server declares is then compared before anything is asked.
        batch: Images of one request.
        headers: Sent along with every request; kept out of logs.
        persistence: Time-outs, retries and rate of an address.
    """
    text, suffix = str(place), Path(str(place)).suffix.lower()
    if text.startswith(("http://", "https://")) or suffix == ".json":
        limits = persistence or Persistence()
        if suffix == ".json" and not text.startswith("http"):
            template = JsonTemplate.load(text)
            return HttpSuspect(template, classes, limits, headers or {})
        described = dict(input or {})
        wanted = OpenInference(url=text, preprocessing=Preprocessing.of(described), input=input_name, output=output)
        if batch is not None:
            wanted = replace(wanted, batch=batch)
        suspect = HttpSuspect(wanted, classes, limits, headers or {})
        suspect.format = wanted.completed(suspect.get(wanted.model), shape=shape, layout_given="layout" in described)
        return suspect
    if suffix == ".onnx":
        return OnnxSuspect(text, Preprocessing.of(input or {}), classes=classes, output=output)
    if suffix == ".safetensors" or suffix in PICKLED:
        if model is None:
            raise InputError(f"{place} holds weights only: name the architecture that they belong to.")
        return weights_suspect(text, model(), normalize=normalize)
    if suffix in _TABLES:
        return PredictionFile(text, classes=classes)
    raise InputError(
        f"{place} is no suspect that can be asked: expected an address http(s)://HOST/v2/models/NAME, a template "
        ".json, a model .onnx, weights .safetensors or .pt, or predictions .csv or .jsonl."
    )
