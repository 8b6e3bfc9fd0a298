"""The Open Inference Protocol, version 2, over HTTP: what KServe, Triton, MLServer, TorchServe and others speak.

| request | what |
|---|---|
| ``GET /v2/models/NAME`` | metadata: names, types and shapes of inputs and outputs |
| ``POST /v2/models/NAME/infer`` | ``inputs``: name, shape, datatype, data (flat); the reply has ``outputs`` |

Tensors travel as JSON numbers. The binary extension is not used: not every server has it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from indelible.base.errors import InputError
from indelible.verify.suspects.outputs import BadAnswerError, as_array, labels_of
from indelible.verify.suspects.preprocessing import Preprocessing

__all__ = ["DATATYPES", "OpenInference"]

DATATYPES = {"uint8": "UINT8", "float16": "FP16", "float32": "FP32", "float64": "FP64"}


@dataclass(frozen=True, kw_only=True)
class OpenInference:
    """A model of an Open Inference server.

    Attributes:
        url: ``http://host:port/v2/models/NAME``, with or without ``/infer``.
        preprocessing: What the model takes.
        input: Name of its input; None until the metadata was read.
        output: Name of the output with labels or scores; None for the only one.
        batch: Images of one request, at most.
    """

    url: str
    preprocessing: Preprocessing
    input: str | None = None
    output: str | None = None
    batch: int = 32

    def __post_init__(self) -> None:
        if "/v2/models/" not in self.url:
            raise InputError(
                f"{self.url} names no model: an Open Inference address is http://HOST:PORT/v2/models/NAME. For another "
                "kind of server, describe its JSON in a template file."
            )
        if self.batch < 1:
            raise InputError(f"a request holds at least 1 image, but batch is {self.batch}.")

    @property
    def model(self) -> str:
        """Address of the model's metadata."""
        return self.url.rstrip("/").removesuffix("/infer")

    @property
    def address(self) -> str:
        """Where requests are posted to."""
        return f"{self.model}/infer"

    def completed(self, metadata: Any) -> "OpenInference":
        """Return this with the names in a model's metadata, after comparing its type with the description."""
        try:
            inputs, outputs = metadata["inputs"], metadata["outputs"]
            names = [str(found["name"]) for found in inputs]
            types = {str(found["name"]): str(found["datatype"]) for found in inputs}
            ends = [str(found["name"]) for found in outputs]
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise InputError(f"{self.model} gives no metadata of an Open Inference model ({error!r}).") from error
        if self.input is None and len(names) != 1:
            raise InputError(f"{self.model} has {len(names)} inputs, but a classifier of images has one.")
        name = names[0] if self.input is None else self.input
        if name not in names:
            raise InputError(f"{self.model} has no input {name!r}, only {', '.join(names)}.")
        if types[name] != DATATYPES[self.preprocessing.dtype]:
            raise InputError(
                f"{self.model} takes {types[name]}, but its input was described as {self.preprocessing.dtype}. "
                "Describe it as it is."
            )
        if self.output is None and len(ends) != 1:
            raise InputError(f"{self.model} has the outputs {', '.join(ends)}: name the one with labels or scores.")
        return replace(self, input=name, output=ends[0] if self.output is None else self.output)

    def describe(self) -> Mapping[str, Any]:
        """Return what was asked, for logs and evidence."""
        return {
            "protocol": "open-inference-v2", "url": self.model, "input": self.input, "output": self.output,
            "preprocessing": self.preprocessing.to_json(),
        }  # fmt: skip

    def encode(self, images: Tensor) -> Any:
        """Return the request."""
        array = self.preprocessing.apply(images)
        tensor = {
            "name": self.input or "input", "shape": list(array.shape),
            "datatype": DATATYPES[self.preprocessing.dtype], "data": array.ravel().tolist(),
        }  # fmt: skip
        return {"inputs": [tensor]} if self.output is None else {"inputs": [tensor], "outputs": [{"name": self.output}]}

    def decode(self, reply: Any, *, count: int, classes: int, first: int) -> Tensor:
        """Return the labels in a reply."""
        try:
            outputs = {str(found["name"]): found for found in reply["outputs"]}
        except (KeyError, TypeError, AttributeError) as error:
            cause = reply.get("error", repr(error)) if isinstance(reply, Mapping) else repr(error)
            raise BadAnswerError(f"the answer to query {first} has no outputs ({cause!s:.160}).") from error
        name = self.output if self.output is not None else next(iter(outputs), "")
        if name not in outputs or (self.output is None and len(outputs) != 1):
            raise BadAnswerError(
                f"the answer to query {first} has the outputs {', '.join(outputs) or 'none'}, not the one {name!r}."
            )
        found = outputs[name]
        if not isinstance(found, Mapping) or not isinstance(found.get("data"), list):
            raise BadAnswerError(f"the output {name!r} in the answer to query {first} has no data.")
        array = as_array(found["data"], first=first)
        shape = found.get("shape")
        if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
            raise BadAnswerError(f"the output {name!r} in the answer to query {first} has no shape.")
        if math.prod(shape) != array.size:
            raise BadAnswerError(
                f"the answer to query {first} states the shape {shape!s:.80}, but holds {array.size} numbers."
            )
        return labels_of(array.reshape(shape), count=count, classes=classes, first=first)
