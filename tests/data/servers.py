"""A web server on this machine that misbehaves on request."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Site:
    """What the server serves and how; ``requests`` records the Range of every request (empty when it had none)."""

    files: dict[str, bytes]
    ranges: bool = True
    drop_after: list[int] = field(default_factory=list)  # for each request in turn: bytes before the connection breaks
    errors: list[int] = field(default_factory=list)  # for each request in turn: a status to answer instead
    requests: list[str] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            site.requests.append(wanted)
            body = site.files.get(self.path.lstrip("/"))
            if site.errors and (code := site.errors.pop(0)):
                self.send_error(code)
                return
            if body is None:
                self.send_error(404)
                return
            start = 0
            if wanted and site.ranges:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(body):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(body)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            sent = body[start:]
            if site.drop_after:
                sent = sent[: site.drop_after.pop(0)]
            self.wfile.write(sent)
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
