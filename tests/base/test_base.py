"""Files whole or not at all, records that rebuild, registries that refuse, seeds that need no state."""

import errno
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError, StorageError, UnknownNameError
from indelible.base.files import (
    canonical_json,
    read_json,
    read_tensors,
    replacing,
    tensor_digest,
    write_bytes,
    write_json,
    write_tensors,
)
from indelible.base.records import Record, plain
from indelible.base.registry import Registry
from indelible.base.seeding import derive_seed, generator


class TestFiles:
    def test_replaced_in_one_step(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "file.json"
        write_json(path, {"a": 1})
        write_json(path, {"a": 2}, mode=0o600)
        assert read_json(path) == {"a": 2}
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]

    def test_an_exception_leaves_the_old_file_and_no_litter(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        write_bytes(path, b"old")
        with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
            temporary.write_bytes(b"half" * (1 // 0))
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]

    @pytest.mark.parametrize(("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission denied")])
    def test_refusals_of_the_file_system(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
    ) -> None:
        path = tmp_path / "file"
        write_bytes(path, b"old")

        def refuse(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match=words):
            write_tensors(path, {"a": torch.ones(3)})
        assert path.read_bytes() == b"old"
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]

    def test_tensors_round_trip_with_metadata_and_aliases(self, tmp_path: Path) -> None:
        shared = torch.randn(3, 4)
        tensors = {"a": shared, "b": shared, "c": shared.t(), "d": torch.tensor(True), "e": torch.zeros(0, 2)}
        write_tensors(tmp_path / "t", tensors, {"x": [1, "ü"]})
        found, metadata = read_tensors(tmp_path / "t")
        assert metadata == {"x": [1, "ü"]}
        assert all(torch.equal(found[name], tensors[name]) for name in tensors)
        assert tensor_digest(found) == tensor_digest(tensors)

    def test_digest_sees_names_types_shapes_and_bits(self) -> None:
        base = {"a": torch.zeros(2, 2)}
        others = [
            {"b": torch.zeros(2, 2)},
            {"a": torch.zeros(4)},
            {"a": torch.zeros(2, 2, dtype=torch.int32)},
            {"a": torch.tensor([[0.0, 0.0], [0.0, -0.0]])},
        ]
        assert len({tensor_digest(one) for one in [base, *others]}) == 5
        assert tensor_digest({"a": torch.ones(1), "b": torch.zeros(1)}) == tensor_digest(
            {"b": torch.zeros(1), "a": torch.ones(1)}
        )

    @pytest.mark.parametrize("content", [b"", b"x", b"\xff" * 100, b'{"a": 1}'])
    def test_damaged_tensors_and_json(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "f"
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=rf"^{re.escape(str(path))} is not a whole safetensors file \("):
            read_tensors(path)
        if content == b'{"a": 1}':
            assert read_json(path) == {"a": 1}
        else:
            with pytest.raises(DamagedFileError, match=rf"^{re.escape(str(path))} is not readable JSON \("):
                read_json(path)
        with pytest.raises(DamagedFileError, match="does not exist"):
            read_json(tmp_path / "none")
        with pytest.raises(DamagedFileError, match="does not exist"):
            read_tensors(tmp_path / "none")

    def test_canonical_json(self) -> None:
        assert canonical_json({"b": [1, 2.5], "a": "ü"}) == '{"a":"ü","b":[1,2.5]}'.encode()
        with pytest.raises(ValueError, match="JSON"):
            canonical_json(float("nan"))


class TestRecord:
    def test_round_trip(self) -> None:
        record = Record(verb="embed", method="app", settings={"eps": 0.02}, seed=3, metrics={"ba": 0.9})
        again = Record.from_json(json.loads(json.dumps(record.to_json())))
        assert again == record
        assert {"python", "torch", "indelible"} <= again.versions.keys()
        assert again.hardware["device"] == "cpu"

    @pytest.mark.parametrize("value", [None, [], {}, {"format": 2}])
    def test_other_things_are_refused(self, value: object) -> None:
        with pytest.raises(DamagedFileError, match="expected a record of format 1"):
            Record.from_json(value)

    def test_fields_that_are_missing_or_unknown_are_named(self) -> None:
        with pytest.raises(DamagedFileError, match=r"lacks \['method', 'seed', 'settings'\] and has unknown \['x'\]"):
            Record.from_json({"format": 1, "verb": "x", "x": 1})

    def test_unknown_fields_are_refused(self) -> None:
        record = Record(verb="embed", method="app", settings={}, seed=0).to_json()
        with pytest.raises(DamagedFileError, match="surprise"):
            Record.from_json({**record, "surprise": 1})

    def test_plain(self) -> None:
        assert plain({"a": (1, float("nan"), torch.tensor(2.0))}) == {"a": [1, None, 2.0]}
        with pytest.raises(TypeError, match="object"):
            plain(object())


@dataclass(frozen=True)
class Entry:
    name: str


class TestRegistry:
    def test_choices_and_duplicates(self) -> None:
        registry: Registry[Entry] = Registry("thing")
        registry.add(Entry("first"))
        registry.add(Entry("second"))
        assert list(registry) == ["first", "second"]
        assert registry["first"] == Entry("first")
        with pytest.raises(InputError, match="registered already"):
            registry.add(Entry("first"))
        with pytest.raises(UnknownNameError, match=r"unknown thing 'frist': .* first, second\. Did you mean 'first'"):
            registry["frist"]


def test_seeds() -> None:
    assert derive_seed(0, "a", 1) == derive_seed(0, "a", 1)
    assert len({derive_seed(seed, place, step) for seed in range(4) for place in "ab" for step in range(5)}) == 40
    assert torch.equal(torch.rand(3, generator=generator(1, "x")), torch.rand(3, generator=generator(1, "x")))
