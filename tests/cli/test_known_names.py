"""Names and descriptions that the command line knows without torch: the same as in the registries."""

import argparse
import json
import runpy
from importlib import resources
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from indelible.attacks import ATTACKS
from indelible.base.checks import check_like, check_settings
from indelible.base.errors import InputError
from indelible.cli import main
from indelible.cli.command_line import add_option
from indelible.cli.known_names import FILE, _stored_by, data_name, known_methods, known_names, model_name
from indelible.data.catalog import load
from indelible.embedding import EMBEDDINGS
from indelible.train import TrainSettings


def test_the_stored_names_are_those_of_the_registries() -> None:
    stored = json.loads(resources.files("indelible.cli").joinpath(FILE).read_text(encoding="utf-8"))
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "write_known_names.py"))
    assert stored == tool["collect_names"](), "run: python tools/write_known_names.py"


def test_every_method_is_described() -> None:
    assert {"ft", "fp", "anp", "nad", "mcr", "nnl"} <= known_methods("attacks").keys() <= set(ATTACKS)
    assert {"vanilla", "ew", "cw", "app"} <= known_methods("embeddings").keys() <= set(EMBEDDINGS)
    assert known_methods("attacks")["ft"]["defaults"]["lr"] == 0.05
    assert known_names("procedure")[0] == "auto"


@pytest.mark.parametrize(
    "kind", [*(info.build for registry in (ATTACKS, EMBEDDINGS) for info in registry.entries()), TrainSettings]
)
def test_a_setting_with_a_number_as_default_takes_no_text(kind: Any) -> None:
    """What is refused before torch is imported, by the default and the interval alone, is refused after it too."""
    defaults, hints = kind().to_json(), get_type_hints(kind)
    for name in (name for name, value in defaults.items() if type(value) in {bool, float}):
        assert {type(defaults[name])} <= {hints[name], *get_args(hints[name])} <= {bool, float, float | None, NoneType}
        with pytest.raises(InputError) as late:
            check_settings(kind, {name: "x"}, "setting")
        with pytest.raises(InputError) as early:
            check_like({name: "x"}, defaults, kind.ranges)
        assert str(early.value).removeprefix("the setting") in str(late.value).replace(" or null", "")
    check_like(defaults, defaults, kind.ranges)


@pytest.mark.parametrize("name", ["cifar10", "cifar10?train=5000", "../folder", "images.npz", "a/b"])
def test_data_names(name: str) -> None:
    assert data_name(name) == name


def test_a_data_set_that_is_refused_early_is_refused_by_load_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(argparse.ArgumentTypeError) as early:
        data_name("cifra10")
    with pytest.raises(ValueError, match="cifra10") as late:
        load("cifra10")
    assert str(early.value) == str(late.value)
    (tmp_path / "cifra10").mkdir()
    assert data_name("cifra10") == "cifra10"


def test_model_names() -> None:
    assert model_name("resnet-mini") == "resnet-mini"
    assert model_name("my.nets:build") == "my.nets:build"
    with pytest.raises(argparse.ArgumentTypeError, match="Did you mean 'resnet-18'"):
        model_name("resnet-19")


def test_a_choice_lists_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indelible.cli.command_line.known_names", {"path": ["still", "tuning"]}.__getitem__)
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_option(parser, "--path", {"names": "path", "default": "still"})
    assert parser.parse_args([]).path == "still"
    assert parser.parse_args(["--path", "tuning"]).path == "tuning"
    with pytest.raises(argparse.ArgumentError, match="unknown path 'quiet': choose one of still, tuning"):
        parser.parse_args(["--path", "quiet"])


@pytest.mark.parametrize("which", ["embed", "attack"])
def test_the_list_is_the_same_from_the_file_and_from_the_registry(
    which: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for loaded in (ATTACKS if which == "attack" else EMBEDDINGS, None):
        monkeypatch.setattr("indelible.cli.known_names.loaded_registry", lambda _which, found=loaded: found)
        assert main([which, "--list"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].count("defaults:") == len(known_methods("attacks" if which == "attack" else "embeddings"))


def test_a_description_of_another_package_is_read_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text('{"attacks": [{"name": "shake"}]}')  # of no package
    for package, text in (("none", None), ("good", '{"attacks": [{"name": "shake", "cost": "1"}]}'), ("bad", "{")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError")
        if text is not None:
            (tmp_path / package / FILE).write_text(text)
    found = [_stored_by(package, "attacks", "shake") for package in ("missing", "none", "good", "bad", "json")]
    assert found == [{}, {}, {"shake": {"name": "shake", "cost": "1"}}, {}, {}]
    assert _stored_by("good", "embeddings", "shake") == _stored_by("good", "attacks", "other") == {}
