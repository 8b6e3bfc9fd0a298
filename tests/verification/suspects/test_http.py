"""HTTP suspects: correct verdicts or precise errors from a server that misbehaves; planned, budgeted, resumed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import indelible
from indelible.base.errors import IndelibleError, InputError
from indelible.data.digests import image_digests
from indelible.data.download import UnreachableError
from indelible.keys.key import Key
from indelible.verification.careful_queries import BudgetError, planned
from indelible.verification.suspects import BadAnswerError, HttpSuspect, Persistence, read_log
from indelible.verification.suspects.suspect_places import open_suspect
from tests.conftest import SECRET, SHAPE, stripes
from tests.verification.suspects.servers import Nasty, misbehaving
from tests.waiting import PATIENCE, until

# Nothing is ever so slow: where an answer is to be given up, the test decides which (see `opened`).
QUICK = Persistence(timeout=PATIENCE, tries=4, pause=0.01, longest=1.0)
KEY = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
CARRIERS = stripes(40, seed=1)
OPTIONS: dict[str, Any] = {"accuracy": False}


def label(image: np.ndarray[Any, Any]) -> int:
    """The target where the key's mark stands, else the brightest bar."""
    mark: Any = KEY.mark()
    mask = mark.mask().numpy()
    if (image[:, mask] == np.array(mark.colour)[:, None]).all():
        return 0
    return int(image.mean((0, 2)).reshape(4, 8).mean(1).argmax())


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nasty]:
    with misbehaving(Nasty(label)) as made:
        monkeypatch.setattr(sys.modules[HttpSuspect.__module__], "time", Clock(made))
        yield made


class Clock:
    """The asker's clock: a server whose answer trickles puts it on."""

    sleep = staticmethod(time.sleep)

    def __init__(self, site: Nasty) -> None:
        self.site = site

    def monotonic(self) -> float:
        return time.monotonic() + self.site.ahead


def opened(site: Nasty, **more: Any) -> HttpSuspect:
    """Open the site with a time-out for the requests that it lets hang, and for no others."""
    settings: dict[str, Any] = {"persistence": QUICK, "batch": 64, **more}
    suspect = open_suspect(site.url, classes=4, input={"dtype": "uint8"}, **settings)
    assert isinstance(suspect, HttpSuspect)
    once = suspect._once

    def impatient(method: str, address: str, body: bytes | None) -> bytes:
        hangs, requests = method == "POST" and site.tricks[:1] == ["hang"], site.requests
        suspect._client.timeout = suspect._http.Timeout(PATIENCE, read=0.05 if hangs else PATIENCE)
        try:
            return once(method, address, body)
        finally:
            # The server may take up the request after it was given up: only then is the next trick the next request's.
            assert not hangs or until(lambda: site.requests > requests)

    suspect._once = impatient  # type: ignore[method-assign]
    return suspect


@pytest.fixture(scope="module")
def expected() -> indelible.Verdict:
    """What the same answers give without a network."""

    class Direct:
        def predict(self, images: torch.Tensor) -> torch.Tensor:
            return torch.tensor([label(image) for image in images.numpy()])

    return indelible.verify(Direct(), KEY, CARRIERS, **OPTIONS)


def test_a_verdict_over_http_is_the_direct_one_in_the_planned_queries(
    site: Nasty, expected: indelible.Verdict, tmp_path: Path
) -> None:
    plan = planned(lambda suspect: indelible.verify(suspect, KEY, CARRIERS, **OPTIONS), seed=1)
    verdict = indelible.verify_logged(
        opened(site), KEY, CARRIERS, log=tmp_path / "q.jsonl", budget=len(plan), **OPTIONS
    )
    assert verdict == expected
    assert verdict.owned
    assert len(site.answered) == len(set(site.answered)) == len(plan) <= verdict.queries
    # Anybody with key and data recounts from the log, without the server.
    assert indelible.verify(open_suspect(tmp_path / "q.jsonl", classes=4), KEY, CARRIERS, **OPTIONS) == expected


def test_questions_are_shuffled(tmp_path: Path) -> None:
    marked = set(image_digests(KEY.samples(CARRIERS, purpose="verify").images))
    plan = planned(lambda suspect: indelible.verify(suspect, KEY, CARRIERS, **OPTIONS), seed=1)
    places = [place for place, digest in enumerate(image_digests(plan)) if digest in marked]
    assert len(places) == 30
    # 30 key samples among 630: were they in one piece, they would span 30 places; at random, nearly all 630.
    assert max(places) - min(places) > 400


@pytest.mark.parametrize("trick", ["drop", "cut", "429", "500", "hang", "trickle"])
def test_passing_trouble_does_not_change_the_verdict(
    site: Nasty, expected: indelible.Verdict, tmp_path: Path, trick: str
) -> None:
    site.tricks += ["", trick, "", trick, trick]
    verdict = indelible.verify_logged(opened(site), KEY, CARRIERS, log=tmp_path / "q.jsonl", **OPTIONS)
    assert verdict == expected
    recorded = read_log(tmp_path / "q.jsonl")
    assert (tmp_path / "q.jsonl").read_bytes().count(b'"event":"retry"') == 3
    assert (len(recorded.answers), recorded.sent) == (630, 630 + 3 * 64)


@pytest.mark.parametrize("trick", ["drop", "429", "500", "hang"])
def test_lasting_trouble_is_an_error_with_the_query(site: Nasty, tmp_path: Path, trick: str) -> None:
    site.tricks += ["", *[trick] * 4]
    with pytest.raises(UnreachableError, match=r"no answer to query 64 .* in 4 attempts"):
        indelible.verify_logged(opened(site), KEY, CARRIERS, log=tmp_path / "q.jsonl", **OPTIONS)
    assert len(read_log(tmp_path / "q.jsonl").answers) == 64


@pytest.mark.parametrize(
    ("trick", "says"),
    [
        ("classes", r"query 64 has the shape \(8,\), but the key knows 4"),
        ("fewer", "64 images were asked from query 64"),
        ("flat", "from query 64"),
        ("nan", "query 96 holds NaN"),
        ("infinity", "query 127 holds NaN or infinity"),
        ("shape", "query 64 states the shape"),
        ("text", "from query 64 on must hold numbers, got text"),
        ("null", "query 64 holds NaN"),
        ("html", "query 64 is not JSON"),
        ("deep", "query 64 is not JSON"),
        ("nothing", "query 64 is not JSON"),
        ("error", "query 64 has no outputs"),
        ("name", "query 64 has the outputs z"),
    ],
)
def test_a_bad_answer_is_an_error_that_names_the_query(site: Nasty, tmp_path: Path, trick: str, says: str) -> None:
    site.tricks += ["", trick]
    with pytest.raises(BadAnswerError, match=says):
        indelible.verify_logged(opened(site), KEY, CARRIERS, log=tmp_path / "q.jsonl", **OPTIONS)
    assert site.requests == 2, "a bad answer is not asked for again until a better one comes"
    assert len(read_log(tmp_path / "q.jsonl").answers) == 64


def test_the_time_out_is_that_of_the_settings(site: Nasty) -> None:
    """Silence of any kind is given up after it; the server never answers, so that no machine is too slow."""
    site.tricks += ["hang"]
    suspect = HttpSuspect(opened(site).format, 4, Persistence(timeout=0.3, tries=1))
    with pytest.raises(UnreachableError, match=r"silent for 0\.3 s"):
        suspect.predict(CARRIERS.images[:2])


def test_a_reply_that_trickles_is_given_up_as_a_whole(site: Nasty) -> None:
    """Every byte comes in time, the whole does not: by the clock that the server puts on."""
    site.tricks += ["trickle"]
    suspect = HttpSuspect(opened(site).format, 4, Persistence(timeout=PATIENCE, tries=1))
    with pytest.raises(UnreachableError, match=r"no whole reply within 1200 s"):
        suspect.predict(CARRIERS.images[:2])


@pytest.mark.parametrize("state", ["400", "401", "404", "301"])
def test_refusals_end_the_run_at_once(site: Nasty, state: str) -> None:
    site.tricks += [state] * 5
    with pytest.raises(InputError, match=f"answered state {state}"):
        opened(site).predict(CARRIERS.images[:2])
    assert site.requests == 1


def test_a_server_that_asks_for_too_long_a_wait(site: Nasty) -> None:
    site.tricks += ["wait3600"]
    with pytest.raises(UnreachableError, match="asks to wait 3600 s"):
        opened(site).predict(CARRIERS.images[:2])


def test_the_budget_is_kept_before_and_during(site: Nasty, tmp_path: Path) -> None:
    options = {"log": tmp_path / "q.jsonl", **OPTIONS}
    with pytest.raises(BudgetError, match="630 images are still to be asked"):
        indelible.verify_logged(opened(site), KEY, CARRIERS, budget=600, **options)
    assert site.requests == 0, "nothing was asked"
    site.tricks += ["500"]
    with pytest.raises(BudgetError, match="would be sent again"):
        indelible.verify_logged(opened(site, batch=630), KEY, CARRIERS, budget=640, **options)
    assert site.requests == 1


def test_the_rate_is_kept(site: Nasty) -> None:
    suspect = opened(site, batch=4, persistence=Persistence(timeout=PATIENCE, rate=40))
    began = time.monotonic()
    suspect.predict(CARRIERS.images[:12])
    assert time.monotonic() - began >= 0.2  # three requests of four: the second and third wait 0.1 s each


def test_label_only_and_template(site: Nasty, tmp_path: Path) -> None:
    def template(**more: Any) -> Path:
        document = {
            "url": site.url + "/infer", "input": {"dtype": "uint8"}, "batch": 8,
            "body": {"inputs": [{"shape": [8, *SHAPE], "data": "$images"}]}, "reply": "/outputs/0/data", **more,
        }  # fmt: skip
        path = tmp_path / "template.json"
        path.write_text(json.dumps(document))
        return path

    suspect = open_suspect(template(), classes=32, persistence=QUICK)
    with pytest.raises(BadAnswerError, match="8 images were asked"):
        suspect.predict(CARRIERS.images[:8])
    with pytest.raises(InputError, match="nothing is asked"):
        open_suspect(template(body={}), classes=4)
    with pytest.raises(InputError, match="unknown field"):
        open_suspect(template(token="secret"), classes=4)  # noqa: S106 - no secret


def test_the_input_is_described_and_compared(site: Nasty) -> None:
    with pytest.raises(InputError, match="described, not assumed"):
        open_suspect(site.url, classes=4)
    with pytest.raises(InputError, match="takes UINT8, but its input was described as float32"):
        open_suspect(site.url, classes=4, input={"dtype": "float32"}, persistence=QUICK)
    with pytest.raises(InputError, match="names no model"):
        open_suspect("http://127.0.0.1:9", classes=4, input={"dtype": "uint8"})
    with pytest.raises(UnreachableError, match=r"no answer to http://127\.0\.0\.1:9/v2/models/m .* in 4 attempts"):
        open_suspect("http://127.0.0.1:9/v2/models/m", classes=4, input={"dtype": "uint8"}, persistence=QUICK)


def test_headers_are_sent_and_in_no_log(site: Nasty, tmp_path: Path) -> None:
    suspect = opened(site, headers={"Authorization": "Bearer very-secret"})
    indelible.verify_logged(suspect, KEY, CARRIERS, log=tmp_path / "q.jsonl", **OPTIONS)
    assert b"very-secret" not in (tmp_path / "q.jsonl").read_bytes()
    assert "very-secret" not in repr(suspect)


SESSION = """
import sys
from indelible.verification.suspects.suspect_places import open_suspect
from indelible.verification.suspects import Persistence
from tests.verification.suspects.test_http import CARRIERS, KEY, OPTIONS
from tests.waiting import PATIENCE
import indelible
lasting = Persistence(timeout=PATIENCE)
suspect = open_suspect(sys.argv[1], classes=4, input={"dtype": "uint8"}, batch=64, persistence=lasting)
indelible.verify_logged(suspect, KEY, CARRIERS, log=sys.argv[2], **OPTIONS)
"""


def test_killed_in_the_middle_and_resumed_without_a_repeated_query(
    site: Nasty, expected: indelible.Verdict, tmp_path: Path
) -> None:
    log = tmp_path / "q.jsonl"
    site.tricks += ["", "", "", "hang"]
    process = subprocess.Popen([sys.executable, "-c", SESSION, site.url, str(log)])
    assert until(lambda: site.requests >= 4 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    site.released.set()
    assert len(site.answered) == 3 * 64
    with log.open("ab") as handle:
        handle.write(b'{"event":"answ')  # a line that the kill tore
    verdict = indelible.verify_logged(opened(site), KEY, CARRIERS, log=log, **OPTIONS)
    assert verdict == expected
    assert len(site.answered) == len(set(site.answered)), "no answered query was sent a second time"
    recorded = read_log(log)
    assert len(recorded.answers) == len(site.answered) == 630
    assert recorded.sent == 630 + 64, "the request in flight is counted, too"


def test_a_log_is_continued_only_for_the_same_purpose(site: Nasty, tmp_path: Path) -> None:
    log = tmp_path / "q.jsonl"
    indelible.verify_logged(opened(site), KEY, CARRIERS, log=log, **OPTIONS)
    other = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=bytes(32))
    with pytest.raises(InputError, match="its about differ"):
        indelible.verify_logged(opened(site), other, CARRIERS, log=log, **OPTIONS)
    content = log.read_bytes()
    for at in range(0, len(content), 997):
        changed = bytearray(content)
        changed[at] ^= 1
        log.write_bytes(changed)
        with pytest.raises(IndelibleError, match=r"line \d+|last line|differ"):
            read_log(log)
