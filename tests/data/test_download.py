import hashlib
import os
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, InputError, StorageError
from indelible.data import download as download_module
from indelible.data.download import UnreachableError, download
from tests.data.servers import Site, serving

BODY = bytes(range(256)) * 4096
DIGESTS = (f"sha256:{hashlib.sha256(BODY).hexdigest()}", f"md5:{hashlib.md5(BODY, usedforsecurity=False).hexdigest()}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_TIMEOUT": 300.0, "_TRIES": 3, "_PAUSE": 0.001}.items():
        monkeypatch.setattr(download_module, name, value)


def _get(site: Site, path: Path, digests: tuple[str, ...] = DIGESTS) -> None:
    download(f"{site.url}/set.bin", path, digests)


def _left(path: Path) -> list[str]:
    return sorted(child.name for child in path.parent.iterdir())


def test_whole_file_arrives_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "new" / "set.bin"
    with serving(Site({"set.bin": BODY})) as site:
        _get(site, path)
        assert path.read_bytes() == BODY
        assert _left(path) == ["set.bin"]
        _get(site, path)
        assert site.requests == [""], "a whole file is not downloaded again"


def test_dropped_connections_are_resumed_where_they_stopped(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    with serving(Site({"set.bin": BODY}, drop_after=[1000, 5000])) as site:
        _get(site, path)
    assert path.read_bytes() == BODY
    assert site.requests == ["", "bytes=1000-", "bytes=6000-"]


def test_interrupted_download_goes_on_in_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    with serving(Site({"set.bin": BODY}, drop_after=[70_000, 0, 0, 0])) as site:
        with pytest.raises(UnreachableError, match=r"dropped.*70,000 bytes are kept"):
            _get(site, path)
        assert not path.exists()
        site.requests.clear()
        _get(site, path)
    assert path.read_bytes() == BODY
    assert site.requests == ["bytes=70000-"]


def test_starts_over_when_the_server_cannot_resume(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    with serving(Site({"set.bin": BODY}, ranges=False)) as site:
        (tmp_path / "set.bin.part").write_bytes(b"an older version of the file")
        _get(site, path)
    assert path.read_bytes() == BODY
    assert site.requests == ["bytes=28-"]
    assert _left(path) == ["set.bin"]


def test_half_of_another_file_is_noticed_by_digest_and_fetched_anew(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    (tmp_path / "set.bin.part").write_bytes(b"x" * 5000)
    with serving(Site({"set.bin": BODY})) as site:
        _get(site, path)
    assert path.read_bytes() == BODY
    assert site.requests == ["bytes=5000-", ""]


@pytest.mark.parametrize("have", [len(BODY), len(BODY) + 7])
def test_part_that_is_complete_or_too_long(tmp_path: Path, have: int) -> None:
    path = tmp_path / "set.bin"
    (tmp_path / "set.bin.part").write_bytes((BODY + b"surplus")[:have])
    with serving(Site({"set.bin": BODY})) as site:
        _get(site, path)
    assert path.read_bytes() == BODY


def test_wrong_file_is_refused_by_name_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    altered = BODY[:-1] + b"?"
    with (
        serving(Site({"set.bin": altered})) as site,
        pytest.raises(DamagedFileError) as caught,
    ):
        _get(site, path)
    message = str(caught.value)
    assert "set.bin" in message
    assert DIGESTS[0].removeprefix("sha256:") in message
    assert hashlib.sha256(altered).hexdigest() in message
    assert "It was deleted; run the command again." in message
    assert _left(path) == []


def test_wrong_file_that_is_there_already_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "set.bin"
    path.write_bytes(b"half")
    with serving(Site({"set.bin": BODY})) as site:
        _get(site, path)
    assert path.read_bytes() == BODY


def test_passing_server_errors_are_retried_and_lasting_ones_are_not(tmp_path: Path) -> None:
    with serving(Site({"set.bin": BODY}, errors=[503, 500])) as site:
        _get(site, tmp_path / "set.bin")
        assert len(site.requests) == 3
        with pytest.raises(UnreachableError, match="404"):
            download(f"{site.url}/gone.bin", tmp_path / "gone.bin", DIGESTS)
        assert len(site.requests) == 4


def test_nobody_listens(tmp_path: Path) -> None:
    with serving(Site({})) as site:
        pass
    with pytest.raises(UnreachableError, match="refused"):
        _get(site, tmp_path / "set.bin")


def test_only_web_addresses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only http and https"):
        download("file:///etc/hostname", tmp_path / "x", DIGESTS)


def test_a_package_of_npm_comes_from_the_registry_that_npm_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Site({"set.bin": BODY})) as site:
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"{site.url}/")
        download("npm:set.bin", tmp_path / "set.bin", DIGESTS)
    assert (tmp_path / "set.bin").read_bytes() == BODY
    monkeypatch.delenv("NPM_CONFIG_REGISTRY")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError, match=r"no npm to say .* Install npm, or set .* NPM_CONFIG_REGISTRY"):
        download("npm:set.bin", tmp_path / "other.bin", DIGESTS)


def test_second_process_is_kept_out(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (tmp_path / "set.bin.part").open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process"):
            download("http://127.0.0.1:9/set.bin", tmp_path / "set.bin", DIGESTS)


def test_full_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with serving(Site({"set.bin": BODY})) as site, pytest.raises(StorageError, match="disk is full"):
        _get(site, tmp_path / "set.bin")
    assert not (tmp_path / "set.bin").exists()
