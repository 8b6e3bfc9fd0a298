"""The speed measurement on a tiny network: every case, ratios against the plain step of the same round."""

import json

import pytest

from indelible.base.records import plain
from indelible.bench.speed import measure_speed
from indelible.cli import main


def test_cases_and_ratios() -> None:
    speed = measure_speed("resnet-mini", shape=(1, 28, 28), batch_size=8, rounds=2, steps=1)
    assert list(speed.seconds) == ["plain", "c-BN only (eps 0)", "APP", "data pipeline"]
    assert speed.ratio["plain"] == 1.0
    assert all(low <= speed.ratio[name] <= high for name, (low, high) in speed.spread.items())
    assert speed.seconds["APP"] > speed.seconds["data pipeline"]
    json.dumps(plain(speed))


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "run", "speed", "--model", "resnet-mini", "--batch-size", "8", "--rounds", "1", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 1
