"""A model behind an HTTP address (extra ``http``): time-outs, retries with jitter, a rate limit, checked answers.

What is sent and how the reply is read is a :class:`Format`, such as
:class:`~indelible.verification.suspects.template.JsonTemplate`. This file moves the bytes.

What is tried again: docs/suspects.md. Never tried again: any other state, a redirect, a reply that is no JSON, is too
large or does not hold what was asked for. A server cannot change the verdict by such replies; it can only prevent one.
"""

import json
import random
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.imports import needed
from indelible.data.download import UnreachableError
from indelible.verification.suspects.answer_labels import BadAnswerError, in_batches

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_LARGEST_REPLY = 64 << 20
_LONGEST_CAUSE = 200
# Where servers write what went wrong: Open Inference, and what web frameworks do by themselves.
_CAUSES = ("error", "message", "detail")
_INPUT = "Check the description of its input (--input, --input-name)."
_REMEDIES = {
    400: _INPUT, 422: _INPUT, 401: "Check the headers (--header).", 403: "Check the headers (--header).",
    404: "Check address and model name.", 413: "Ask fewer images per request (--batch).",
}  # fmt: skip
_RANDOM = random.SystemRandom()


class Format(Protocol):
    """What a server is sent, and how its replies are read."""

    @property
    def batch(self) -> int:
        """Images of one request, at most."""

    @property
    def address(self) -> str:
        """Where requests are posted to."""

    def describe(self) -> Mapping[str, Any]:
        """Return what was asked, for logs and evidence."""

    def encode(self, images: Tensor) -> Any:
        """Return the request."""

    def decode(self, reply: Any, *, count: int, classes: int, first: int) -> Tensor:
        """Return the labels in a reply."""


@dataclass(frozen=True, kw_only=True)
class Persistence:
    """How long to wait and how often to try again.

    ``timeout`` seconds are for connecting, for silence, and for a whole reply; ``pause``, doubled each time, and
    ``longest`` are the seconds between two of ``tries`` attempts. A server that asks to wait longer ends the run.
    ``rate`` is in images a second.
    """

    timeout: float = 30.0
    tries: int = 5
    pause: float = 1.0
    longest: float = 60.0
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.tries < 1 or self.timeout <= 0 or self.pause < 0 or (self.rate is not None and self.rate <= 0):
            raise InputError(f"time-out, tries and rate must be positive, got {self}.")


class _Again(Exception):  # noqa: N818 - not an error yet: a reason to try again
    def __init__(self, cause: str, wait: float | None = None, said: str = "") -> None:
        super().__init__(cause)
        self.cause, self.wait = cause, wait
        # Apart from the cause, which goes into the log: a server's own words may hold what a log must not.
        self.described = f"{cause} ({said})" if said else cause


@dataclass
class HttpSuspect:
    """A model behind an address; headers may hold a token, so they are in no log.

    ``on_retry`` is told the cause before a request is sent again.
    """

    format: Format
    classes: int
    persistence: Persistence = field(default_factory=Persistence)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_retry: Callable[[str], None] | None = field(default=None, repr=False)
    _free_at: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._http = needed("httpx2", extra="http", what="a suspect behind an address")
        self._client = self._http.Client(
            headers={"User-Agent": "indelible", **self.headers}, timeout=self.persistence.timeout,
            follow_redirects=False, trust_env=False,
        )  # fmt: skip
        weakref.finalize(self, self._client.close)  # whoever forgets to close it leaves no open connection behind

    def describe(self) -> dict[str, Any]:
        """Return what was asked, for logs and evidence; no headers."""
        return {"kind": "http", **self.format.describe()}

    def predict(self, images: Tensor) -> Tensor:
        """Return the label of each image, asking as many at a time as the format allows."""
        return in_batches(self.ask, images, self.format.batch)

    def ask(self, images: Tensor, first: int = 0) -> Tensor:
        """Send one request, as often as need be; ``first`` is the number of its first query, for errors."""
        request = json.dumps(self.format.encode(images), separators=(",", ":"), allow_nan=False).encode()
        self._hold_back(len(images))
        reply = self._send(f"query {first}", "POST", self.format.address, request)
        return self.format.decode(reply, count=len(images), classes=self.classes, first=first)

    def get(self, address: str) -> Any:
        """Read a JSON document of the server, such as the metadata of its model."""
        return self._send(address, "GET", address, None)

    def _hold_back(self, count: int) -> None:
        if self.persistence.rate is None:
            return
        wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        self._free_at = time.monotonic() + count / self.persistence.rate

    def _send(self, what: str, method: str, address: str, body: bytes | None) -> Any:
        """Return the JSON reply to a request, sent as often as need be; ``what`` names it in errors."""
        limits = self.persistence
        for attempt in range(1, limits.tries + 1):
            try:
                return self._parsed(self._once(method, address, body), what)
            except _Again as again:
                pause = min(limits.longest, limits.pause * 2 ** (attempt - 1))
                wait = _RANDOM.uniform(0.0, pause) if again.wait is None else again.wait
                if attempt == limits.tries:
                    raise UnreachableError(
                        f"no answer to {what} from {address} in {limits.tries} attempts; the last: {again.described}. "
                        "Answers so far are in the log, if one is kept: run the same command again to continue."
                    ) from again
                if wait > limits.longest:
                    raise UnreachableError(
                        f"{address} asks to wait {wait:.0f} s before {what} is sent again ({again.described}). Run the "
                        "same command again then; what was answered is in the log."
                    ) from again
                time.sleep(wait)
                if self.on_retry is not None and method == "POST":
                    self.on_retry(again.cause)
        raise AssertionError("unreachable")  # pragma: no cover - the loop returns or raises

    @staticmethod
    def _parsed(body: bytes, what: str) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            start = body[:60].decode(errors="replace")
            raise BadAnswerError(
                f"the answer to {what} is not JSON: it starts with {start!r}. Check the address."
            ) from error

    def _once(self, method: str, address: str, body: bytes | None) -> bytes:
        http, ends = self._http, time.monotonic() + self.persistence.timeout
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            with self._client.stream(method, address, content=body, headers=headers) as reply:
                found = bytearray()
                for chunk in reply.iter_bytes():
                    found += chunk
                    if len(found) > _LARGEST_REPLY:
                        raise BadAnswerError(f"{address} answers with more than {_LARGEST_REPLY >> 20} MiB.")
                    if time.monotonic() > ends:
                        raise _Again(f"no whole reply within {self.persistence.timeout:g} s")
                status, headers_back = int(reply.status_code), reply.headers
        except http.TimeoutException as error:
            raise _Again(f"silent for {self.persistence.timeout:g} s ({type(error).__name__})") from error
        except (http.InvalidURL, http.UnsupportedProtocol) as error:
            raise InputError(f"{address} is not an address that can be asked: {error}.") from error
        except http.DecodingError as error:
            raise BadAnswerError(f"{address} answers with a body that cannot be decoded ({error}).") from error
        except http.HTTPError as error:
            raise _Again(f"{type(error).__name__}: {error}".rstrip(": ")) from error
        if status in _AGAIN:
            raise _Again(f"state {status}", _asked_wait(headers_back.get("Retry-After")), _said(bytes(found)))
        if not 200 <= status < 300:
            remedy = _REMEDIES.get(status, "Check address, model name and headers.")
            raise InputError(f"{address} answered state {status} ({_said(bytes(found)) or 'no text'}). {remedy}")
        return bytes(found)


def _said(body: bytes) -> str:
    """Return what a server wrote about an error: shortened, quoted, without anything that a terminal would obey."""
    text = body[: 1 << 16].decode(errors="replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        text = next((str(found[name]) for name in _CAUSES if found.get(name)), text)
    words = " ".join(text.split())
    return "" if not words else repr(words if len(words) <= _LONGEST_CAUSE else f"{words[:_LONGEST_CAUSE]}...")


def _asked_wait(header: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for: a number or a date; None for none."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
