"""The add-on as an outside package: its names are found by entry points, and missed with a remedy without them."""

import json
import runpy
import sys
from importlib import resources
from importlib.metadata import EntryPoints, distribution
from pathlib import Path
from typing import Any

import pytest

import indelible
from indelible.analyze import ANALYSES, Analysis, read_analysis
from indelible.base.errors import COMPANIONS, DamagedFileError
from indelible.cli import main
from indelible.cli.known_names import FILE, known_methods
from indelible.embedding import EMBEDDINGS
from indelible.report.figures import FIGURES
from indelible.verification.suspects import SUSPECTS

ROOT = Path(__file__).parents[3]
REGISTRIES = (EMBEDDINGS, ANALYSES, SUSPECTS)
REMEDY = "Run: pip install indelible-companions"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Indelible without the add-on, or any other package."""
    monkeypatch.chdir(tmp_path)
    nothing: Any = lambda **_: EntryPoints(())  # noqa: E731
    monkeypatch.setattr("importlib.metadata.entry_points", nothing)
    monkeypatch.setattr("indelible.base.registry.entry_points", nothing)
    for registry in REGISTRIES:
        own = {name: info for name, info in registry._entries.items() if info.build.__module__.startswith("indelible.")}
        monkeypatch.setattr(registry, "_entries", own)


def test_the_table_of_names_has_every_entry_point_and_no_other() -> None:
    points = distribution("indelible-companions").entry_points
    found = {one.what: sorted(point.name for point in points.select(group=one.group)) for one in REGISTRIES}
    assert found == {what: sorted(names) for what, names in COMPANIONS.items()}
    assert {point.group for point in points} == {one.group for one in REGISTRIES}


def test_every_entry_point_gives_what_it_says() -> None:
    for registry in REGISTRIES:
        assert registry.load_installed() == []
        for name in COMPANIONS[registry.what]:
            assert registry[name].build.__module__.startswith("indelible_companions.")
    assert EMBEDDINGS["rose"].title == "ROSE"
    assert EMBEDDINGS.name_of(EMBEDDINGS["cae"].build) == "cae"
    assert FIGURES["dynamics"].title == "The watermark during an attack"
    assert FIGURES["tsne"].title == "Features in two dimensions"


def test_the_stored_descriptions_are_those_of_the_registry() -> None:
    stored = json.loads(resources.files("indelible_companions").joinpath(FILE).read_text(encoding="utf-8"))
    tool = runpy.run_path(str(ROOT / "tools" / "write_known_names.py"))
    assert stored == tool["collect_companions"](), "run: python tools/write_known_names.py"
    assert [one["name"] for one in stored["embeddings"]] == sorted(COMPANIONS["embedding method"])
    assert list(known_methods("embeddings")) == list(EMBEDDINGS)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["embed", "--out", "x", "--method", "rose"], "the embedding method 'rose' is in a package of its own"),
        (["bench", "plan", "adversarial-training-cpu"], "the embedding method 'pgd-at' is in a package of its own"),
        (["analyze", "dynamics", "runs/app"], "the figure 'dynamics' is in a package of its own"),
        (["analyze", "tsne", "runs/app"], "the figure 'tsne' is in a package of its own"),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, list) else "",
)
def test_without_it_a_command_says_in_one_line_what_to_install(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert REMEDY in error


@pytest.mark.usefixtures("alone")
def test_without_it_python_says_so_too(tmp_path: Path) -> None:
    for method in COMPANIONS["embedding method"]:
        with pytest.raises(indelible.UnknownNameError, match=f"'{method}' .*{REMEDY}"):
            EMBEDDINGS[method]
    with pytest.raises(indelible.UnknownNameError, match=f"'https' .*{REMEDY}"):
        indelible.open_suspect("https://host/v2/models/m", classes=4)
    (tmp_path / "analysis.json").write_text('{"format": 1, "figure": "dynamics"}')
    with pytest.raises(DamagedFileError, match=f"analysis.json cannot be read: .*{REMEDY}"):
        read_analysis(tmp_path)


def test_without_it_a_certificate_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "indelible_companions.certificate", None)
    assert main(["verify", "runs/app", "--certificate"]) == 2
    assert "Install it with: pip install indelible-companions" in capsys.readouterr().err


def test_committed_numbers_of_the_dynamics_can_be_read() -> None:
    found = json.loads((ROOT / "results" / "analysis" / "dynamics.json").read_text(encoding="utf-8"))
    made: Analysis = ANALYSES["dynamics"].build.from_json(found)
    assert made.to_json() == found
    assert len(made.sentences()) == len(found["tracks"]) == 2
