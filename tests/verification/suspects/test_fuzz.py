"""Foreign files, damaged at random: read as they are, or refused by an error of our own; never another one, no hang.

The seeds are fixed, so that a failure comes again. Each case runs under the suite's time limit.
"""

import io
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from indelible.base.errors import IndelibleError
from indelible.base.files import write_tensors
from indelible.evidence import Commitment, Identity, check_bundle
from indelible.keys.key import Key
from indelible.verification.suspects import open_suspect
from indelible.verification.suspects.log import parse_log
from indelible.verification.suspects.template import JsonTemplate
from tests.conftest import SECRET, SHAPE, TinyNet, stripes
from tests.evidence.cases import Case
from tests.verification.suspects.test_kinds import bars_onnx

IMAGES = stripes(2).images


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Flip, cut, repeat, insert or replace."""
    changed = bytearray(content)
    how, at = chance.randrange(6), chance.randrange(max(1, len(content)))
    if how == 0:
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    elif how == 1:
        changed = changed[:at]
    elif how == 2:
        changed[at:at] = changed[at : at + chance.randint(1, 400)]
    elif how == 3:
        changed[at : at + chance.randint(1, 30)] = chance.randbytes(chance.randint(0, 30))
    elif how == 4:
        changed = bytearray(chance.randbytes(chance.randint(0, 300)))
    else:
        # Numbers and words are where a parser decides: exchange them for extreme ones.
        words = [
            b"-1",
            b"0",
            b"1e999",
            b"NaN",
            b"null",
            b"true",
            b'""',
            b"[]",
            b"{}",
            b"[" * 3000,
            b"9" * 400,
            b'"\\ud800"',
        ]
        digits = [place for place, byte in enumerate(changed) if 0x30 <= byte <= 0x39] or [at]
        place = chance.choice(digits)
        changed[place : place + 1] = chance.choice(words)
    return bytes(changed)


def fuzz(content: bytes, read: Callable[[bytes], object], turns: int, seed: int) -> None:
    chance, refused = random.Random(seed), 0
    read(content)
    for _ in range(turns):
        case = damaged(content, chance)
        try:
            read(case)
        except IndelibleError:
            refused += 1
    assert refused > turns // 4


def from_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def at(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return at


@pytest.mark.parametrize("name", ["key.json", "secret.key"])
@pytest.mark.parametrize("labels", ["fixed", "keyed"])
def test_keys(tmp_path: Path, name: str, labels: Any) -> None:
    Key.create(kind="noise", classes=4, shape=SHAPE, labels=labels, secret=SECRET).save(tmp_path)
    fuzz((tmp_path / name).read_bytes(), from_file(tmp_path / name, lambda path: Key.load(path.parent)), 250, 1)


def test_an_unrelated_keys_pool(tmp_path: Path) -> None:
    Key.create(kind="unrelated", classes=4, shape=SHAPE, target=0, source=stripes(8), secret=SECRET).save(tmp_path)
    path = tmp_path / "pool.safetensors"
    fuzz(path.read_bytes(), from_file(path, lambda path: Key.load(path.parent)), 150, 2)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_checkpoints(tmp_path: Path, suffix: str, net: TinyNet) -> None:
    path = tmp_path / f"model.{suffix}"
    if suffix == "pt":
        torch.save(net.state_dict(), path)
    else:
        write_tensors(path, net.state_dict())
    fuzz(path.read_bytes(), from_file(path, lambda path: open_suspect(path, classes=4, model=TinyNet)), 250, 3)


def test_a_checkpoint_of_the_old_format(tmp_path: Path, net: TinyNet) -> None:
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer, _use_new_zipfile_serialization=False)
    path = tmp_path / "model.pth"
    fuzz(buffer.getvalue(), from_file(path, lambda path: open_suspect(path, classes=4, model=TinyNet)), 200, 4)


def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = bars_onnx(tmp_path / "m.onnx")

    def read(path: Path) -> object:
        return open_suspect(path, classes=4, input={"dtype": "float32"}).predict(IMAGES)

    fuzz(path.read_bytes(), from_file(path, read), 150, 5)


def test_logs_and_predictions(case: Case, tmp_path: Path) -> None:
    content = (case.bundle / "queries.jsonl").read_bytes()
    fuzz(content, parse_log, 300, 6)
    fuzz(content, from_file(tmp_path / "p.jsonl", lambda path: open_suspect(path, classes=4)), 150, 7)
    table = b"digest,label\n" + b"".join(b"%064x,%d\n" % (number, number % 4) for number in range(20))
    fuzz(table, from_file(tmp_path / "p.csv", lambda path: open_suspect(path, classes=4)), 300, 8)
    lines = b"".join(b'{"digest":"%064x","scores":[0.1,0.2,%d,0]}\n' % (number, number % 4) for number in range(20))
    fuzz(lines, from_file(tmp_path / "s.jsonl", lambda path: open_suspect(path, classes=4)), 300, 9)


def test_templates() -> None:
    given = {"url": "http://h/x", "input": {"dtype": "float32", "mean": [0.5], "size": [8, 8]}, "reply": "/a/0",
             "body": {"x": "$images", "n": "$count"}, "batch": 4, "classes": ["a", "b"]}  # fmt: skip

    def read(content: bytes) -> object:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            raise IndelibleError("the JSON reader refuses it") from None
        return JsonTemplate.of(document).encode(IMAGES)

    fuzz(json.dumps(given).encode(), read, 300, 10)


@pytest.mark.parametrize(
    ("labels", "name"),
    [("fixed", "claim.json"), ("keyed", "claim.json"), ("fixed", "images.safetensors"), ("fixed", "queries.jsonl"),
     ("fixed", "commitment.json"), ("keyed", "commitment.json"), ("fixed", "authority.pem")],
)  # fmt: skip
def test_bundles_whose_maker_signs_what_he_damaged(
    request: pytest.FixtureRequest, tmp_path: Path, labels: str, name: str
) -> None:
    """Every parser behind the manifest meets damaged files, too; the check always ends in an answer."""
    case: Case = request.getfixturevalue("keyed_case" if labels == "keyed" else "case")
    bundle, chance, held = tmp_path / "b", random.Random(11), 0
    shutil.copytree(case.bundle, bundle)
    if not (bundle / name).exists():
        pytest.skip("needs openssl")
    content = (bundle / name).read_bytes()
    for _ in range(60):
        changed = damaged(content, chance)
        (bundle / name).write_bytes(changed)
        case.sign(bundle)
        checked = check_bundle(bundle)
        held += checked.holds
        # A certificate file may gain words around the certificate; all else has one form only.
        assert not checked.holds or changed == content or name == "authority.pem", changed
    assert held < 60


def test_commitments_and_identities(case: Case, tmp_path: Path) -> None:
    signature = (case.commitment / "commitment.sig").read_bytes()
    content = (case.commitment / "commitment.json").read_bytes()
    fuzz(content, lambda changed: Commitment.of(changed, signature), 300, 12)
    fuzz((case.commitment / "identity.pem").read_bytes(), from_file(tmp_path / "i.pem", Identity.load), 300, 13)
