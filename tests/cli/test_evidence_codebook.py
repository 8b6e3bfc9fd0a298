"""A codebook from embed to check on the command line; verify and claim give one answer."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from indelible.cli import main
from indelible.keys.key import Key
from tests.cli.test_cli import QUICK, data, document, run
from tests.conftest import SECRET, SHAPE, stripes

__all__ = ["data"]


@pytest.mark.parametrize("bound", [True, False], ids=["set aside", "auditor"])
def test_the_whole_path(capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, bound: bool) -> None:
    carriers: Any = stripes(160, seed=1) if bound else None
    key = Key.create(classes=4, shape=SHAPE, carriers=carriers, secret=SECRET).save(tmp_path / "key")
    owner = tmp_path / "run"
    quick = [word.replace("epochs=8", "epochs=2") for word in QUICK]
    words = ["embed", "--data", data, "--model", "tests.conftest:TinyNet", "--out", owner, "--key", key, "--quiet"]
    assert main([*map(str, words), *quick]) == 0
    capsys.readouterr()
    said = run(capsys, "evidence", "commit", owner, "--out", tmp_path / "c", "--owner", "Tester")
    assert "committed to 16 marks" in said
    assert ("auditor must bring the images" in said) != bound
    own, bundle = owner / "model.safetensors", tmp_path / "b"
    code = main(["verify", str(owner), "--json"])
    found = json.loads(capsys.readouterr().out)
    claimed = document(capsys, "evidence", "claim", tmp_path / "c", owner, "--suspect", own, "--out", bundle, code=code)
    for name in ("p_value", "hits", "trials", "owned", "drawn", "table"):
        assert claimed["verdict"][name] == found[name], name
    shutil.move(owner, tmp_path / "hidden")
    checked = document(capsys, "evidence", "check", bundle, code=code)
    assert (checked["holds"], checked["carriers"]) == (True, "set aside" if bound else "open")
    assert document(capsys, "evidence", "check", bundle, "--key", key, code=code)["derived"]
    compared = document(capsys, "evidence", "check", bundle, "--data", data, code=code)
    assert compared["carriers"] == ("set aside" if bound else "compared")
    page = tmp_path / "page.html"
    assert "complete and unchanged" in run(capsys, "evidence", "show", bundle, "--html", page, code=code)
    assert "Marks with their class" in page.read_text(encoding="utf-8")
