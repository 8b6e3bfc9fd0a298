"""An ONNX file, run by onnxruntime (extra ``onnx``). Its input is described by a :class:`Preprocessing`, not guessed.

The file is data: custom operators are not registered, and a graph that asks for one is refused on loading.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import file_digest
from indelible.base.imports import needed
from indelible.verification.suspects.answer_labels import BadAnswerError, in_batches, labels_of
from indelible.verification.suspects.preprocessing import Preprocessing

_BATCH = 100
_TYPES = {
    "uint8": "tensor(uint8)",
    "float16": "tensor(float16)",
    "float32": "tensor(float)",
    "float64": "tensor(double)",
}
_SILENT = 4


class OnnxSuspect:
    """A model in an ONNX file; ``output`` names the output with labels or scores, if there are several."""

    def __init__(
        self, path: str | Path, preprocessing: Preprocessing, *, classes: int, output: str | None = None
    ) -> None:  # fmt: skip
        runtime = needed("onnxruntime", extra="onnx", what="a suspect in an ONNX file")
        self.path, self.preprocessing, self.classes = Path(path), preprocessing, classes
        if not self.path.is_file():
            raise InputError(f"there is no file {self.path}. Check the path.")
        options = runtime.SessionOptions()
        options.log_severity_level = _SILENT  # what is wrong is raised; nothing is printed besides
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._session = runtime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors share no other base
            cause = " ".join(str(error).split())[:200]
            raise DamagedFileError(f"{self.path} is not a model that onnxruntime can run ({cause}).") from error
        self._input, self._fixed = self._check_input()
        self._output = self._choose_output(output)

    def _check_input(self) -> tuple[str, int | None]:
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise InputError(f"{self.path} takes {len(inputs)} inputs, expected one: the images.")
        wanted = _TYPES[self.preprocessing.dtype]
        if inputs[0].type != wanted:
            raise InputError(
                f"{self.path} takes {inputs[0].type}, but its input was described as {self.preprocessing.dtype} "
                f"({wanted}). Describe it as it is."
            )
        first = inputs[0].shape[0] if inputs[0].shape else None
        return inputs[0].name, first if isinstance(first, int) else None

    def _choose_output(self, output: str | None) -> str:
        names = [found.name for found in self._session.get_outputs()]
        if output is None and len(names) == 1:
            return str(names[0])
        if output is None or output not in names:
            raise InputError(f"{self.path} has the outputs {', '.join(names)}: name the one with labels or scores.")
        return output

    def describe(self) -> dict[str, Any]:
        """Return what was asked, for logs and evidence."""
        return {"kind": "onnx", "file": self.path.name, "digest": file_digest(self.path),
                "preprocessing": self.preprocessing.to_json(), "output": self._output}  # fmt: skip

    def predict(self, images: Tensor) -> Tensor:
        """Return the label of each image."""
        return in_batches(self._ask, images, self._fixed or _BATCH)

    def _ask(self, images: Tensor, first: int) -> Tensor:
        array = self.preprocessing.apply(images)
        short = 0 if self._fixed is None else self._fixed - len(images)
        if short > 0:  # a graph with a fixed batch size gets its last batch filled up
            array = np.concatenate([array, np.repeat(array[-1:], short, axis=0)])
        try:
            output = self._session.run([self._output], {self._input: array})[0]
        except Exception as error:
            cause = " ".join(str(error).split())[:200]
            raise BadAnswerError(f"{self.path} fails at query {first} on input {array.shape}: {cause}") from error
        if not isinstance(output, np.ndarray) or output.dtype.kind not in "iuf":
            raise BadAnswerError(f"{self.path} answered query {first} with something that holds no numbers.")
        whole = output if short <= 0 or output.ndim == 0 else output[: len(images)]
        return labels_of(whole, count=len(images), classes=self.classes, first=first)
