"""Open a suspect from what a user types: an address or a path decides the kind."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from indelible.base.errors import InputError
from indelible.base.weights import PICKLED
from indelible.data.augment import Normalization
from indelible.data.images import Shape
from indelible.train.run_folder import Run, load_weights
from indelible.verification.suspects.http import HttpSuspect, Persistence
from indelible.verification.suspects.onnx import OnnxSuspect
from indelible.verification.suspects.predictions import PredictionFile
from indelible.verification.suspects.preprocessing import Preprocessing
from indelible.verification.suspects.suspect import SUSPECTS, AddressedSuspect, ModuleSuspect, Suspect
from indelible.verification.suspects.template import JsonTemplate

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
        place: ``.json`` (a template of a JSON server); ``.onnx``; ``.safetensors``, ``.pt`` or ``.pth``; ``.csv`` or
            ``.jsonl`` (predictions, a query log); the folder of a finished run; or ``SCHEME://...`` of a registered
            suspect, such as ``http(s)://HOST/v2/models/NAME`` (Open Inference, of ``indelible-companions``).
        classes: Classes of the key.
        input: What a model behind an address or in an ONNX file takes: ``{"dtype": "uint8"}`` and what else
            :class:`~indelible.verification.suspects.preprocessing.Preprocessing` has. Described, never assumed.
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
    scheme, address, _ = text.partition("://")
    if address:
        given = {"input": input, "model": model, "normalize": normalize, "input_name": input_name, "output": output,
                 "shape": shape, "batch": batch, "headers": headers, "persistence": persistence}  # fmt: skip
        options = {name: value for name, value in given.items() if value is not None}
        kind: type[AddressedSuspect] = SUSPECTS[scheme].build
        return kind.open(text, classes=classes, **options)
    if suffix == ".json":
        return HttpSuspect(JsonTemplate.load(text), classes, persistence or Persistence(), headers or {})
    if suffix == ".onnx":
        return OnnxSuspect(text, Preprocessing.of(input or {}), classes=classes, output=output)
    if suffix == ".safetensors" or suffix in PICKLED:
        if model is None:
            raise InputError(
                f"{place} holds weights only. Name their architecture, too: --model NAME on the command line, model="
                " in Python."
            )
        return ModuleSuspect(load_weights(model(), Path(text)).eval(), normalize, Path(text).name)
    if suffix in _TABLES:
        return PredictionFile(text, classes=classes)
    if Run.finished(text):
        return _of_run(Run.load(text))
    raise InputError(
        f"{place} cannot be asked as a suspect: expected an address http(s)://HOST/v2/models/NAME, a template "
        ".json, a model .onnx, weights .safetensors or .pt, predictions .csv or .jsonl, the folder of a run, or "
        "SCHEME://... of a registered suspect."
    )


def _of_run(run: Run) -> Suspect:
    """Return the model of a run with its own architecture and normalisation."""
    if run.record.method == "preprocess":
        raise InputError(
            f"{run.folder} is a model behind a transform of its input, which its weights do not hold. Verify it with: "
            f"indelible verify {run.folder}"
        )
    return ModuleSuspect(run.model().eval(), run.normalize(), run.folder.name)
