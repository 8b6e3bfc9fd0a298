"""Keyed labels beside a fixed target, at toy size: the shape of the record, and rows that are kept."""

import json
from pathlib import Path
from typing import Any

import pytest

import keyed_labels
from keyed_labels import KeyedLabelSettings, main, measure_keyed_labels

TINY = KeyedLabelSettings(owner_images=96, thief_images=32, test_images=40, count=16, epochs=1, rates=(0.001,))
RECORDED = Path(__file__).parents[2] / "results" / "keyed-labels.json"


def test_rows_have_the_shape_of_the_committed_record_and_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measure_keyed_labels(tmp_path, TINY)
    committed = json.loads(RECORDED.read_text())
    assert list(rows) == list(committed)
    for name, row in rows.items():
        assert row.keys() == committed[name].keys()
        assert (row["before"]["labels"], row["attack"]["settings"]["method"]["lr"]) == (row["labels"], 0.05)
        assert list(row["gentle"]) == ["0.001"]
    assert rows["app keyed"]["before"]["trials"] == 16

    def never(*_: Any) -> Any:
        raise AssertionError("done already")

    monkeypatch.setattr(keyed_labels, "_row", never)
    assert measure_keyed_labels(tmp_path, TINY) == rows
    monkeypatch.setattr(keyed_labels, "measure_keyed_labels", lambda _: rows)
    assert main(["--quiet"]) == 0
    assert "app keyed: BA" in capsys.readouterr().out
