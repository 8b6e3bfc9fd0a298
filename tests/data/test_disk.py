import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from indelible.base.errors import DamagedFileError, StorageError
from indelible.base.files import disk_errors
from indelible.data.download import hash_file, mismatch
from indelible.data.install import extract
from tests.data.makers import pixels, tar


@pytest.mark.parametrize(("number", "reason"), [(28, "disk is full"), (13, "permission denied"), (5, "I/O")])
def test_refusals_of_the_disk(number: int, reason: str) -> None:
    with pytest.raises(StorageError, match=f"cannot write here.*{reason}"), disk_errors(Path("here")):
        raise OSError(number, os.strerror(number).replace("Input/output", "I/O"))


def test_digests(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert hash_file(path, "md5") == "900150983cd24fb0d6963f7d28e17f72"
    assert hash_file(path, "sha256") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert mismatch(path, "md5:900150983cd24fb0d6963f7d28e17f72") is None
    assert mismatch(path, "md5:0") == "expected md5 0, found 900150983cd24fb0d6963f7d28e17f72"
    with pytest.raises(DamagedFileError, match="cannot be read"):
        hash_file(tmp_path / "gone", "md5")


def test_only_wanted_regular_files_leave_an_archive(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind in (("a/good", tarfile.REGTYPE), ("../../up", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, 2 * (kind == tarfile.REGTYPE), "/etc/passwd"
            archive.addfile(info, io.BytesIO(b"ok"))
    (tmp_path / "x.tar").write_bytes(buffer.getvalue())
    inside = tmp_path / "in" / "side"
    inside.mkdir(parents=True)
    assert extract(tmp_path / "x.tar", inside, {"good", "link"}) == [inside / "good"]
    with pytest.raises(DamagedFileError, match="not a whole archive"):
        extract(tmp_path / "x.tar", inside, {"up"})
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["good", "x.tar"]


@pytest.mark.parametrize(
    "content", [b"", b"nothing", tar({"good": pixels(3).tobytes()})[:5000]], ids=["empty", "other", "truncated"]
)
def test_broken_archives(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"x\.tar\.gz is not a whole archive"):
        extract(tmp_path / "x.tar.gz", tmp_path, {"good"})
    assert hashlib.sha256(content).hexdigest() == hash_file(tmp_path / "x.tar.gz", "sha256")
