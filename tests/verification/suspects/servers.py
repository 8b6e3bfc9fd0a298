"""A server that misbehaves on request, one that plays recorded replies, and the command's own in another process."""

import contextlib
import hashlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.waiting import PATIENCE

__all__ = ["Nasty", "Recorded", "misbehaving", "playing", "serving_run"]


@dataclass
class Nasty:
    """Answers by ``label``; ``tricks`` says, request by request, what goes wrong instead ("" for nothing)."""

    label: Callable[[np.ndarray[Any, Any]], int]
    classes: int = 4
    shape: tuple[int, ...] = (3, 32, 32)
    answer: str = "probabilities"
    tricks: list[str] = field(default_factory=list)
    requests: int = 0
    answered: list[str] = field(default_factory=list)  # digests of images whose answers went out whole
    released: threading.Event = field(default_factory=threading.Event)
    ahead: float = 0.0  # seconds by which a trickling answer puts the asker's clock on
    url: str = ""

    def scores(self, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows = np.full((len(images), self.classes), 0.1)
        rows[np.arange(len(images)), [self.label(image) for image in images]] = 0.7
        return rows


_BODIES = {"html": b"<html>", "deep": b"[" * 100_000, "nothing": b"", "error": b'{"error": "oh"}'}


def _changed(trick: str, scores: np.ndarray[Any, Any]) -> tuple[list[int], list[Any]]:
    """Return shape and data of an answer that has something wrong with it."""
    rows = scores
    if trick == "classes":
        rows = np.concatenate([scores, scores], 1)
    elif trick == "fewer":
        rows = scores[:-1]
    elif trick == "flat":
        rows = scores.reshape(-1)
    elif trick == "nan":
        rows = scores.copy()
        rows[len(rows) // 2, 1] = np.nan
    elif trick == "infinity":
        rows = scores.copy()
        rows[-1, 0] = np.inf
    shape = list(rows.shape)
    if trick == "shape":
        shape = [*shape, 2]
    data = rows.reshape(-1).tolist()
    if trick == "text":
        data[0] = "many"
    elif trick == "null":
        data[0] = None
    return shape, data


@contextlib.contextmanager
def misbehaving(site: Nasty) -> Iterator[Nasty]:  # noqa: C901 - one branch for each way to misbehave
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = PATIENCE

        def do_GET(self) -> None:
            self.reply(200, {
                "name": "m", "inputs": [{"name": "x", "datatype": "UINT8", "shape": [-1, *site.shape]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, site.classes]}],
            })  # fmt: skip

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            trick = site.tricks.pop(0) if site.tricks else ""
            site.requests += 1
            if trick in {"drop", "cut"}:
                if trick == "cut":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"outputs"')
                self.close_connection = True
                return
            if trick == "hang":
                site.released.wait(PATIENCE)
                self.close_connection = True
                return
            if trick == "trickle":
                self.trickle()
                return
            if trick.isdigit():
                self.reply(int(trick), {"error": "not now"}, {"Retry-After": "0"} if trick == "429" else {})
                return
            if trick.startswith("wait"):
                self.reply(503, {}, {"Retry-After": trick[4:]})
                return
            if trick in _BODIES:
                self.send(200, _BODIES[trick], {})
                return
            given = json.loads(body)["inputs"][0]
            images = np.array(given["data"], dtype=np.uint8).reshape(given["shape"])
            shape, data = _changed(trick, site.scores(images))
            name = "z" if trick == "name" else "y"
            self.reply(200, {"outputs": [{"name": name, "datatype": "FP32", "shape": shape, "data": data}]})
            site.answered += [hashlib.sha256(image.tobytes()).hexdigest() for image in images]

        def trickle(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            site.ahead += 10 * PATIENCE
            while not site.released.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()
            self.close_connection = True

        def reply(self, state: int, document: Any, headers: dict[str, str] | None = None) -> None:
            self.send(state, json.dumps(document).encode(), headers or {})

        def send(self, state: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(state)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}/v2/models/m"
    try:
        yield site
    finally:
        site.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Recorded:
    """Metadata, and what is answered to each request: (state, body); the last one again and again."""

    metadata: Any
    replies: list[tuple[int, str]]
    asked: list[Any] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def playing(site: Recorded) -> Iterator[Recorded]:
    """Play recorded replies; yield with the address of the model."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send(200, json.dumps(site.metadata))

        def do_POST(self) -> None:
            site.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send(*site.replies[min(len(site.asked), len(site.replies)) - 1])

        def send(self, state: int, body: str) -> None:
            self.send_response(state)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.url = f"http://127.0.0.1:{server.server_address[1]}/v2/models/m"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def serving_run(run: Path, *words: str) -> Iterator[str]:
    """Serve a run in another process; yield the address."""
    server = Path(__file__).parents[3] / "experiments" / "serve.py"
    command = [sys.executable, str(server), str(run), "--port", "0", "--json", "--threads", "1", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, "the server ended"
            text += line
        yield json.loads(text)["url"]
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()
