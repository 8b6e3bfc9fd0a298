"""Serve a run's model over HTTP (Open Inference Protocol v2) until Ctrl-C, to try out verification over a network.

    python experiments/serve.py runs/app-ft --port 8080
    python experiments/serve.py runs/app-ft --answer label --name classifier

The standard library's threading server is enough for that: one model, JSON in and out, a handful of addresses. It is
not meant for the open internet: no encryption, no authentication, one computation at a time.

| address | answer |
|---|---|
| ``GET /v2`` | name, version, extensions of the server |
| ``GET /v2/health/live``, ``/v2/health/ready`` | 200 |
| ``GET /v2/models/NAME`` | metadata of the model |
| ``GET /v2/models/NAME/ready`` | 200 |
| ``POST /v2/models/NAME/infer`` | one output: ``logits``, ``probabilities`` or ``label`` |

The input is ``pixels``: UINT8, (N, C, H, W), as images are everywhere in the package.
"""

import argparse
import http.server
import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from command import command, guarded, program
from indelible.attacks import deployed
from indelible.base.errors import InputError, UnknownNameError
from indelible.base.records import versions
from indelible.cli.options import emit
from indelible.data.augment import Normalization, normalise, to_float
from indelible.data.images import Shape
from indelible.nn.outputs import logits_of
from indelible.train.evaluate import evaluating
from indelible.train.run_folder import Run

__all__ = ["ANSWERS", "ModelServer", "Served", "main"]

Answer = Literal["logits", "probabilities", "label"]
ANSWERS: tuple[Answer, ...] = ("logits", "probabilities", "label")
_LARGEST_REQUEST = 64 << 20
_LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """A model and what of it is shown.

    Attributes:
        model: Any classifier.
        name: Its name in the address.
        shape: (C, H, W) of its images.
        classes: Number of classes.
        normalize: (mean, std) that its input is normalised by.
        answer: ``"logits"``, ``"probabilities"`` or ``"label"``, the least that a server can say.
    """

    model: nn.Module
    name: str
    shape: Shape
    classes: int
    normalize: Normalization | None = None
    answer: Answer = "probabilities"
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise UnknownNameError("answer of a server", self.answer, ANSWERS)
        if not self.name or "/" in self.name:
            raise InputError(f"a model's name in an address has no slash and is not empty, but is {self.name!r}.")

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the protocol."""
        one = self.answer == "label"
        return {
            "name": self.name, "versions": ["1"], "platform": "pytorch",
            "inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [-1, *self.shape]}],
            "outputs": [
                {"name": self.answer, "datatype": "INT64" if one else "FP32", "shape": [-1, 1 if one else self.classes]}
            ],
        }  # fmt: skip

    def infer(self, request: Any) -> dict[str, Any]:
        """Answer one request of the protocol; raise :class:`InputError` for a bad one."""
        output = self._compute(self._pixels(request))
        answer = {
            "name": self.answer, "datatype": "INT64" if self.answer == "label" else "FP32",
            "shape": list(output.shape), "data": output.flatten().tolist(),
        }  # fmt: skip
        reply: dict[str, Any] = {"model_name": self.name, "model_version": "1", "outputs": [answer]}
        if isinstance(request.get("id"), str):
            reply["id"] = request["id"]
        return reply

    def _pixels(self, request: Any) -> Tensor:
        try:
            (given,) = request["inputs"]
            shape, kind, data = list(given["shape"]), given["datatype"], given["data"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("a request has one input with name, shape, datatype and data.") from error
        if kind != "UINT8" or len(shape) != 4 or shape[1:] != list(self.shape):
            raise InputError(f"expected UINT8 of shape [N, {', '.join(map(str, self.shape))}], came {kind} {shape}.")
        try:
            pixels = np.asarray(data, dtype=np.int64).reshape(shape)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"the data do not fit the shape {shape}: {error}.") from error
        if pixels.size and (pixels.min() < 0 or pixels.max() > 255):
            raise InputError("pixels lie in 0..255.")
        return torch.from_numpy(pixels.astype(np.uint8))

    def _compute(self, pixels: Tensor) -> Tensor:
        weight = next((one for one in self.model.parameters() if one.is_floating_point()), torch.empty(0))
        # One computation at a time: evaluation mode is a property of the module, not of a request.
        with self._lock, evaluating(self.model):
            images = normalise(to_float(pixels.to(weight.device)), self.normalize).to(weight.dtype)
            logits = logits_of(self.model(images)).float().cpu()
        if self.answer == "label":
            return logits.argmax(1, keepdim=True)
        return logits.softmax(1) if self.answer == "probabilities" else logits


class ModelServer(http.server.ThreadingHTTPServer):
    """Serves one model; ``url`` is its address, ``queries`` counts the images it answered.

    Args:
        served: The model.
        host: Interface to listen on.
        port: 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, served: Served, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.served, self.queries = served, 0
        if not 0 <= port <= _LAST_PORT:
            raise InputError(
                f"a port is a number from 0 (any free one) to {_LAST_PORT}, got {port}. Choose another --port."
            )
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise InputError(f"cannot listen on {host}:{port}: {error.strerror}. Choose another --port.") from error

    @property
    def url(self) -> str:
        """Address of the model."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/v2/models/{self.served.name}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    server: ModelServer

    def do_GET(self) -> None:
        """Answer with what is known of the server and the model."""
        served, path = self.server.served, self.path.rstrip("/")
        model = f"/v2/models/{served.name}"
        known: dict[str, Any] = {
            "/v2": {"name": "indelible", "version": versions()["indelible"], "extensions": []},
            "/v2/health/live": {"live": True},
            "/v2/health/ready": {"ready": True},
            model: served.metadata(),
            f"{model}/ready": {"name": served.name, "ready": True},
        }
        found = known.get(path)
        self._reply(404, {"error": f"nothing at {path}"}) if found is None else self._reply(200, found)

    def do_POST(self) -> None:
        """Answer images."""
        served = self.server.served
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _LARGEST_REQUEST:
            self.close_connection = True
            self._reply(413, {"error": f"a request has a Content-Length of at most {_LARGEST_REQUEST} bytes"})
            return
        body = self.rfile.read(int(length))
        if self.path.rstrip("/") != f"/v2/models/{served.name}/infer":
            self._reply(404, {"error": f"nothing at {self.path}"})
            return
        try:
            request = json.loads(body)
            reply = served.infer(request)
        except (ValueError, RecursionError, InputError) as error:
            self._reply(400, {"error": str(error)[:300]})
            return
        self.server.queries += int(reply["outputs"][0]["shape"][0])
        self._reply(200, reply)

    def _reply(self, state: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(state)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Stay silent: the command line reports what matters."""


def _work(arguments: argparse.Namespace) -> None:
    saved = Run.load(arguments.run)
    normalize = saved.normalize()
    served = Served(
        model=deployed(saved.model(), saved.record, normalize=normalize), name=arguments.name,
        shape=saved.architecture.shape, classes=saved.architecture.classes, normalize=normalize,
        answer=arguments.answer,
    )  # fmt: skip
    with ModelServer(served, host=arguments.host, port=arguments.port) as server:
        ask = f"indelible verify OWNER-RUN --suspect {server.url} --input dtype=uint8 --log queries.jsonl"
        emit(arguments, {"url": server.url}, f"serving {arguments.run} at {server.url}\nask it with: {ask}")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command until it is interrupted."""
    options = command(__doc__, record=False)
    options.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    options.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: this machine only)")
    options.add_argument("--port", type=int, default=8080, help="0 takes a free one (default: 8080)")
    options.add_argument("--name", default="model", help="the model's name in its address (default: model)")
    options.add_argument(
        "--answer", default="probabilities", help="logits, probabilities or label (default: probabilities)"
    )
    return guarded(options.parse_args(argv), _work)


if __name__ == "__main__":
    program(main)
