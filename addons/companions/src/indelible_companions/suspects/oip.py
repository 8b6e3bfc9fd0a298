"""The Open Inference Protocol, version 2, over HTTP: what KServe, Triton, MLServer, TorchServe and others speak.

| request | what |
|---|---|
| ``GET /v2/models/NAME`` | metadata: names, types and shapes of inputs and outputs |
| ``POST /v2/models/NAME/infer`` | ``inputs``: name, shape, datatype, data (flat); the reply has ``outputs`` |

Tensors travel as JSON numbers. The binary extension is not used: not every server has it.

What the metadata declares is compared with what would be sent, before the first query. A server may declare nothing:
MLServer answers empty lists unless its model has settings for them. Then the input's name is the one that was given, or
``input-0``, and the first reply shows the outputs.

| declared shape of the input | what is sent |
|---|---|
| ``[-1, 3, 32, 32]``, ``[3, 32, 32]`` | channels first |
| ``[-1, 32, 32, 3]``, ``[32, 32, 3]`` | channels last, unless the description says channels first: then an error |
| ``[1, 3, 32, 32]`` | one image per request |
| ``[-1, -1, -1, -1]``, none | as described |
| any other | an error that says what to change |
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from torch import Tensor

from indelible.base.errors import InputError
from indelible.data.images import Shape
from indelible.verification.suspects.answer_labels import BadAnswerError, as_array, labels_of
from indelible.verification.suspects.http import HttpSuspect, Persistence
from indelible.verification.suspects.preprocessing import Preprocessing
from indelible.verification.suspects.suspect import AddressedSuspect

DATATYPES = {"uint8": "UINT8", "float16": "FP16", "float32": "FP32", "float64": "FP64"}
# The name in the examples of KServe and TorchServe. A server that declares no input rarely looks at it.
DEFAULT_INPUT = "input-0"
_CHANNELS = (1, 3)


@dataclass(frozen=True, kw_only=True)
class OpenInference:
    """A model of an Open Inference server.

    Attributes:
        url: ``http://host:port/v2/models/NAME``, with or without ``/infer``.
        preprocessing: What the model takes.
        input: Name of its input; None for the only one that it declares, or ``input-0`` if it declares none.
        output: Name of the output with labels or scores; None for the only one.
        batch: Images of one request, at most.
        declared: Shape of the input by the metadata, without the batch axis; -1 for any side, None for no shape.
    """

    url: str
    preprocessing: Preprocessing
    input: str | None = None
    output: str | None = None
    batch: int = 32
    declared: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if "/v2/models/" not in self.url:
            raise InputError(
                f"{self.url} names no model: an Open Inference address is http://HOST:PORT/v2/models/NAME. For another "
                "kind of server, describe its JSON in a template file."
            )
        if self.batch < 1:
            raise InputError(f"batch must be at least 1 image per request, got {self.batch}.")

    @property
    def model(self) -> str:
        """Address of the model's metadata."""
        return self.url.rstrip("/").removesuffix("/infer")

    @property
    def address(self) -> str:
        """Where requests are posted to."""
        return f"{self.model}/infer"

    def completed(
        self, metadata: Any, *, shape: Shape | None = None, layout_given: bool = False
    ) -> "OpenInference":  # fmt: skip
        """Return this with what a model's metadata declares, after comparing it with the description.

        ``shape`` is (C, H, W) of the images, if known: else the first request is compared. With ``layout_given``, the
        described layout is compared as well, and not taken from the declared shape.
        """
        inputs, outputs = self._listed(metadata, "inputs"), self._listed(metadata, "outputs")
        made = self if not inputs else self._with_input(inputs, layout_given=layout_given)
        output, names = self.output, [str(found["name"]) for found in outputs]
        if names:
            output = self._named(names, output, "output", "--output")
        made = replace(made, input=made.input or DEFAULT_INPUT, output=output)
        if shape is not None:
            made.check_sides(made.preprocessing.shape_of(shape))
        return made

    def _listed(self, metadata: Any, what: str) -> list[Mapping[str, Any]]:
        """Return the inputs or outputs that a server declares; it need not declare any."""
        found = metadata.get(what) if isinstance(metadata, Mapping) and "name" in metadata else 0
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(one, Mapping) and "name" in one for one in found):
            raise InputError(f"{self.model} gives no metadata of an Open Inference model. Check the address.")
        return found

    def _with_input(self, inputs: Sequence[Mapping[str, Any]], *, layout_given: bool) -> "OpenInference":
        names = [str(found["name"]) for found in inputs]
        name = self._named(names, self.input, "input", "--input-name")
        found = inputs[names.index(name)]
        if found.get("datatype") != DATATYPES[self.preprocessing.dtype]:
            raise InputError(
                f"{self.model} takes {found.get('datatype')}, but its input was described as "
                f"{self.preprocessing.dtype}. Describe it as it is."
            )
        sides, batch = self._sides(found.get("shape"))
        layout = None if sides is None else declared_layout(sides)
        wanted = self.preprocessing
        if layout is not None and layout != wanted.layout:
            if layout_given:
                raise InputError(
                    f"{self.model} declares an input of shape {found['shape']}, which is {layout}, but its input was "
                    f"described with layout={wanted.layout}. Describe it as it is."
                )
            wanted = replace(wanted, layout=layout)
        return replace(self, input=name, preprocessing=wanted, declared=sides, batch=batch or self.batch)

    def _sides(self, shape: Any) -> tuple[tuple[int, ...] | None, int | None]:
        """Return a declared shape without its batch axis, and the images per request if the server fixes them."""
        if not shape:
            return None, None
        try:
            sides = tuple(int(side) for side in shape)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{self.model} declares a shape that is not a list of numbers: {shape!r:.80}.") from error
        if len(sides) == 3 and min(sides) > 0:  # one image; the batch axis is left out
            return sides, None
        if len(sides) != 4:
            raise InputError(
                f"{self.model} declares an input of shape {list(sides)}, but a batch of images has 4 axes: "
                "[-1, C, H, W] or [-1, H, W, C]. Ask a model that takes images, or describe the server in a template."
            )
        if sides[0] > 1:
            raise InputError(
                f"{self.model} takes exactly {sides[0]} images per request, but a session need not fill its last one. "
                "Serve the model with a first axis of -1 or 1."
            )
        return sides[1:], 1 if sides[0] == 1 else None

    def _named(self, names: Sequence[str], given: str | None, what: str, option: str) -> str:
        """Return the name that was given, or the only one that is declared."""
        if given is None and len(names) == 1:
            return names[0]
        if given is None:
            raise InputError(f"{self.model} has the {what}s {', '.join(names)}: name the one to use ({option}).")
        if given not in names:
            raise InputError(f"{self.model} has no {what} {given!r}, it declares: {', '.join(names)} ({option}).")
        return given

    def check_sides(self, sides: Sequence[int]) -> None:
        """Refuse images that do not have the declared sides, all in the layout that is sent."""
        if self.declared is None or all(one in {-1, side} for one, side in zip(self.declared, sides, strict=True)):
            return
        raise InputError(
            f"{self.model} declares an input of {list(self.declared)} per image, but {list(sides)} would be sent "
            f"({self.preprocessing.layout}). Describe it: --input size=[HEIGHT,WIDTH], channels=1 or 3, layout=NHWC."
        )

    def describe(self) -> Mapping[str, Any]:
        """Return what was asked, for logs and evidence."""
        return {
            "protocol": "open-inference-v2", "url": self.model, "input": self.input, "output": self.output,
            "preprocessing": self.preprocessing.to_json(),
        }  # fmt: skip

    def encode(self, images: Tensor) -> Any:
        """Return the request."""
        array = self.preprocessing.apply(images)
        self.check_sides(array.shape[1:])
        tensor = {
            "name": self.input or DEFAULT_INPUT, "shape": list(array.shape),
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
        if self.output is None and len(outputs) > 1:
            raise BadAnswerError(
                f"the answer to query {first} has the outputs {', '.join(outputs)}: name the one with labels or scores "
                "(--output)."
            )
        if name not in outputs:
            wanted = "" if self.output is None else f", not {name!r} (--output)"
            raise BadAnswerError(f"the answer to query {first} has the outputs {', '.join(outputs) or 'none'}{wanted}.")
        found = outputs[name]
        if not isinstance(found, Mapping) or not isinstance(found.get("data"), list):
            raise BadAnswerError(f"the output {name!r} in the answer to query {first} has no data.")
        array = as_array(found["data"], first=first)
        shape = found.get("shape")
        if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
            raise BadAnswerError(f"the output {name!r} in the answer to query {first} has no shape.")
        if math.prod(shape) != array.size:
            raise BadAnswerError(
                f"the answer to query {first} states the shape {shape!s:.80}, got {array.size} numbers."
            )
        return labels_of(array.reshape(shape), count=count, classes=classes, first=first)


class OpenInferenceSuspect(HttpSuspect, AddressedSuspect):
    """A model of an Open Inference server, at ``http(s)://HOST/v2/models/NAME``."""

    @classmethod
    def open(cls, place: str, *, classes: int, **options: Any) -> Self:
        """Read the model's metadata, and compare it with the description before anything is asked."""
        described: Mapping[str, Any] = options.get("input", {})
        wanted = OpenInference(
            url=place, preprocessing=Preprocessing.of(described), input=options.get("input_name"),
            output=options.get("output"),
        )  # fmt: skip
        suspect = cls(wanted, classes, options.get("persistence", Persistence()), options.get("headers", {}))
        if "batch" in options:
            wanted = replace(wanted, batch=options["batch"])
        metadata = suspect.get(wanted.model)
        suspect.format = wanted.completed(metadata, shape=options.get("shape"), layout_given="layout" in described)
        return suspect


def declared_layout(sides: Sequence[int]) -> Literal["NCHW", "NHWC"] | None:
    """Return the layout that three declared sides show: the end with 1 or 3 channels; None if both or neither has."""
    first, last = sides[0] in _CHANNELS, sides[2] in _CHANNELS
    return None if first == last else "NCHW" if first else "NHWC"
