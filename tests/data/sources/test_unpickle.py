import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indelible.base.errors import DamagedFileError
from indelible.data.sources.unpickle import read_pickle, unpickle
from tests.data.makers import python2_array, python2_batch, python2_text


def test_reads_a_pickle_of_python_2() -> None:
    values = np.arange(6, dtype=np.uint8).reshape(2, 3)
    batch = unpickle(python2_batch(values.reshape(2, 3, 1, 1), [4, 9]), "batch")
    assert batch[b"labels"] == [4, 9]
    assert batch[b"batch_label"] == b"testing batch 1 of 1"
    np.testing.assert_array_equal(batch[b"data"], values)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "<f4"])
def test_reads_what_todays_numpy_writes(protocol: int, dtype: str) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    for array in (values, np.asfortranarray(values)):
        found = unpickle(pickle.dumps({"a": array, "n": [1, 2.5, None, (True,)]}, protocol=protocol), "file")
        np.testing.assert_array_equal(found["a"], values)
        assert found["n"] == [1, 2.5, None, (True,)]


class _Command:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_never_runs_a_malicious_pickle(tmp_path: Path, protocol: int) -> None:
    path, mark = tmp_path / "data_batch_1", tmp_path / "was run"
    for command in (_Command(os.system, f"touch '{mark}'"), _Command(eval, f"open({str(mark)!r}, 'w')")):
        path.write_bytes(pickle.dumps({"data": command}, protocol=protocol))
        with pytest.raises(DamagedFileError, match=r"data_batch_1 is refused.*call of .*Nothing in it was run"):
            read_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cnumpy\nload\n.",
        b"\x80\x02cnumpy.core.multiarray\nfromfile\n.",
        b"\x80\x02c_codecs\ndecode\n.",
        b"\x80\x02c_codecs\nencode\n}X\x01\x00\x00\x00aK\x01sb.",  # state put into a function
        b"\x80\x02cnumpy\nndarray\n.",  # a bare class
        b"\x80\x02cnumpy\nndarray\n}b.",
        b"\x80\x02K\x01Q.",  # a persistent reference
        b"\x80\x02\x82\x01.",  # the extension registry
        b"\x80\x02" + python2_array(np.zeros((1, 3), np.uint8), kind=b"O8") + b".",
        b"\x80\x02" + python2_array(np.zeros((1, 3), np.uint8), kind=b"u4") + b".",  # 3 bytes are not 3 numbers
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R.",  # an array without content
        b"\x80\x02" + b"(" * 5000 + b".",
        b"\x80\x02" + b"]" * 40 + b"a" * 39 + b".",
        pickle.dumps({1, 2}),
        pickle.dumps(1j),
        b"",
        b"not a pickle",
        python2_batch(np.zeros((2, 3, 32, 32), np.uint8), [1, 2])[:-40],
    ],
)
def test_refuses_everything_that_is_not_plain(content: bytes) -> None:
    with pytest.raises(DamagedFileError, match="batch is refused"):
        unpickle(content, "batch")


def test_object_arrays_are_refused() -> None:
    with pytest.raises(DamagedFileError, match="refused"):
        unpickle(pickle.dumps(np.array([{}], dtype=object), protocol=2), "batch")


def test_huge_shapes_allocate_nothing() -> None:
    opcode = python2_array(np.zeros((1, 1), np.uint8)).replace(
        b"K\x01K\x01\x86", b"J" + struct.pack("<i", 1 << 30) + b"K\x01\x86"
    )
    with pytest.raises(DamagedFileError, match="in 1 bytes"):
        unpickle(b"\x80\x02" + opcode + b".", "batch")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="gone cannot be read"):
        read_pickle(tmp_path / "gone")


def test_makers_write_what_python_2_wrote() -> None:
    # The standard library reads the same bytes to the same value, so the hand-written opcodes are right.
    assert pickle.loads(b"\x80\x02" + python2_text(b"x" * 300) + b".", encoding="bytes") == b"x" * 300  # noqa: S301
