"""Methods of other packages: what the documentation says, done from outside, and what can go wrong."""

import json
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import indelible
from indelible.attacks import ATTACKS
from indelible.base.errors import InputError, UnknownNameError
from indelible.cli import main
from indelible.embedding import EMBEDDINGS
from indelible.keys.key import Key
from indelible.report.model_stages import attack_title
from tests.conftest import SECRET, SHAPE, Install, TinyNet, stripes
from tests.values import attack_value, method_value

PAGE = Path(__file__).parents[2] / "docs" / "contributing.md"

MODULE = """
from dataclasses import dataclass
from indelible.attacks.removal_attack import ATTACKS, RemovalAttack
from indelible.base.registry import MethodInfo
from indelible.embedding.embedding_method import EmbeddingMethod
from indelible.embedding.vanilla import Vanilla

@dataclass(frozen=True, kw_only=True)
class Halve(RemovalAttack):
    '''Halve every weight.'''
    by: float = 2.0

    def run(self, job):
        for weight in job.model.parameters():
            weight.data /= self.by

class Third(Halve):
    pass

class Fourth(Halve):
    pass

INFO = MethodInfo(name="third", title="A third", paper="none", summary="Less.", cost="none", build=Third)

def register():
    ATTACKS.add(MethodInfo(name="fourth", title="A fourth", paper="none", summary="Less.", cost="none", build=Fourth))

@dataclass(frozen=True, kw_only=True)
class Plain(EmbeddingMethod):
    share: float = 0.15

    def run(self, job):
        Vanilla(fraction=self.share).run(job)

class NotDecorated(RemovalAttack):
    times: int = 3
    def run(self, job):
        pass

class Lazy(RemovalAttack):
    pass

def nothing():
    pass

number = 7
"""
POINTS = """
[indelible.attacks]
halve = plug:Halve
third = plug:INFO
fourth = plug:register

[indelible.embeddings]
plain = plug:Plain
"""


def doc_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_documented_example_works_from_outside(
    install: Install, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every block of the section, in its order: files are written, commands are run, Python is executed."""
    (by_class, bench, by_name), (code, python), (preset, pyproject) = map(doc_blocks, ("console", "python", "toml"))
    (outside / "my_attacks.py").write_text(code)
    (outside / "shake.toml").write_text(preset)

    def run(block: str) -> str:
        for line in block.splitlines():
            assert main([*shlex.split(line.removeprefix("$ indelible ")), "--quiet"]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    run(by_class)
    washed = json.loads((outside / "runs" / "mine-my_attacks-Shake" / "run.json").read_text())["record"]
    assert (washed["method"], washed["settings"]["method"]["noise"]) == ("my_attacks:Shake", 0.2)
    names: dict[str, Any] = {"model": TinyNet(), "attacker_data": stripes(20)}
    exec(python, names)  # noqa: S102 - our own page
    assert names["stolen"].record.method == "my_attacks:Shake"
    assert "3 of 3 cells are done" in run(bench)
    entry = re.search(r"^(\w+) = \"(.+)\"$", pyproject, re.MULTILINE)
    assert entry is not None
    install("my_package", "", f"[indelible.attacks]\n{entry[1]} = {entry[2]}\n").joinpath("my_attacks.py").write_text(
        code
    )
    said = run(by_name)
    assert "Shake (my_attacks)" in said
    assert json.loads((outside / "runs" / "mine-shake" / "run.json").read_text())["record"]["method"] == "shake"


def test_nothing_is_searched_or_imported_before_it_is_needed(install: Install, outside: Path) -> None:
    install("plug", f"print('imported')\n{textwrap.dedent(MODULE)}", POINTS)
    code = """
    import importlib.metadata as metadata, sys
    asked = []
    real = metadata.entry_points
    metadata.entry_points = lambda **how: asked.append(how) or real(**how)
    import indelible
    from indelible.attacks import ATTACKS
    from indelible.bench import cells
    ATTACKS["ft"]
    assert not [how for how in asked if str(how.get("group")).startswith("indelible")], asked
    assert "plug" not in sys.modules
    print(ATTACKS["halve"].title)
    """
    source = str(Path(indelible.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": f"{source}:{outside / 'site'}", "PATH": "/usr/bin"},
    )  # fmt: skip
    assert found.stdout.split() == ["imported", "Halve"]


def test_a_class_a_record_and_a_function_can_be_entry_points(install: Install) -> None:
    install("plug", MODULE, POINTS)
    assert [ATTACKS[name].title for name in ("halve", "third", "fourth")] == ["Halve", "A third", "A fourth"]
    assert ATTACKS["halve"].summary == "Halve every weight."
    assert list(ATTACKS)[:2] == ["ft", "fp"]  # ours first
    mine = ("fourth", "halve", "third")
    assert tuple(name for name in ATTACKS if name in mine) == mine  # sorted, whatever was asked for first
    assert EMBEDDINGS["plain"].title == "Plain"
    assert attack_title("third") == "a third (THIRD)"
    with pytest.raises(UnknownNameError, match=r"removal attack 'halv'.*Did you mean 'halve'"):
        ATTACKS["halv"]


def test_attacks_from_outside_run_by_name_class_and_value(install: Install) -> None:
    install("plug", MODULE, POINTS)
    model, data = TinyNet(), stripes(20)
    start = next(model.parameters()).clone()
    for method in ("halve", "plug:Halve"):
        washed = indelible.attack(model, data, method, device="cpu")
        assert washed.record.method == method
        assert torch.equal(next(washed.model.parameters()), start / 2)
        washed = indelible.attack(model, data, attack_value(method, by=4.0), device="cpu")
        assert washed.record.method == "halve"
        assert torch.equal(next(washed.model.parameters()), start / 4)
    import plug  # type: ignore[import-not-found]  # installed by the fixture

    assert ATTACKS.name_of(plug.Halve) == "halve"
    assert ATTACKS.name_of(plug.Lazy) == "plug:Lazy"
    with pytest.raises(UnknownNameError, match="removal attack 'Plain'"):
        ATTACKS.name_of(plug.Plain)


def test_an_embedding_method_from_outside_marks_a_model(install: Install) -> None:
    """By name and by class, it does what the method of this package does that it calls, up to the verdict."""
    install("plug", MODULE, POINTS)
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
    how: dict[str, Any] = {"scale": "paper", "device": "cpu"}
    how["train"] = {"epochs": 12, "batch_size": 32, "lr": 0.05, "augmentation": "none"}
    torch.manual_seed(3)
    net, data = TinyNet(), stripes(160)
    twin = indelible.embed(net, data, key, method_value("vanilla", key, "paper", fraction=0.2), **how)
    for method in ("plain", "plug:Plain"):
        done = indelible.embed(net, data, key, method_value(method, key, "paper", share=0.2), **how)
        assert (done.record.method, done.record.settings["method"]) == ("plain", {"share": 0.2})
        assert all(torch.equal(value, twin.model.state_dict()[name]) for name, value in done.model.state_dict().items())
        # Three quarters of the images are not of the target class; the mark is learnt.
        assert (done.verdict.hits, done.verdict.trials, done.verdict.p_value) == (120, 120, twin.verdict.p_value)
    assert indelible.verify(net, key, data).hits < 60


def test_a_method_that_registers_itself_keeps_the_name_by_which_it_can_be_imported(install: Install) -> None:
    install("plug", MODULE + "\nregister()\nATTACKS.add(INFO)\n", "[indelible.attacks]\nfourth = plug:Fourth\n")
    named = ATTACKS["plug:Fourth"]
    assert (named.name, named.title) == ("plug:Fourth", "A fourth")
    assert ATTACKS["plug:INFO"].name == "plug:INFO"
    assert ATTACKS["fourth"].name == "fourth"
    assert ATTACKS.load_installed() == []


def test_a_record_imports_nothing(outside: Path) -> None:
    (outside / "hostile.py").write_text("raise SystemExit('imported')")
    assert "hostile:Thing" not in ATTACKS
    assert attack_title("hostile:Thing") == "Thing"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:Thing", "cannot import 'nowhere:Thing': there is no module 'nowhere'"),
        ("plug:Nothing", "module 'plug' has no 'Nothing'"),
        ("plug:", "expected 'package.module:Class', got 'plug:'"),
        ("plug:number", r"derives from indelible.attacks.RemovalAttack, got a int"),
        ("plug:Plain", r"derives from indelible.attacks.RemovalAttack, got the class Plain"),
        ("plug:NotDecorated", r"NotDecorated has settings but is not a dataclass. Decorate it"),
        ("plug:Lazy", r"Lazy has no method run\(self, job\)"),
        ("broken:Thing", r"cannot import 'broken:Thing': ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(name: str, said: str, install: Install, outside: Path) -> None:
    install("plug", MODULE, "")
    (outside / "broken.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=said):
        ATTACKS[name]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("one = nowhere:Thing", r"cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("one = plug:Nothing", r"cannot be loaded: AttributeError"),
        ("one = plug:number", r"expected a class, a MethodInfo or a function that registers one, got int"),
        ("one = plug:nothing", r"nothing\(\) registered no removal attack of this name"),
        ("one = plug:INFO", r"its MethodInfo has the name 'third'. Give both the same name"),
        ("one = plug:Plain", r"derives from indelible.attacks.RemovalAttack, got the class Plain"),
    ],
)
def test_a_broken_entry_point_is_named_and_disturbs_nobody(
    entry: str, said: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("plug", MODULE, f"[indelible.attacks]\n{entry}\nhalve = plug:Halve\n")
    with pytest.raises(
        InputError, match=rf"the entry point 'one' of the group 'indelible.attacks' \(.* of plug\) .*{said}"
    ):
        ATTACKS["one"]
    assert "one" not in ATTACKS
    assert main(["attack", "--list", "--json"]) == 0
    out, err = capsys.readouterr()
    assert {"ft", "halve"} < {info["name"] for info in json.loads(out)}
    assert re.match(rf"indelible: warning: the entry point 'one' .*{said}", err)
    assert err.count("\n") == 1


def test_names_that_are_taken_are_refused(install: Install) -> None:
    install("plug", MODULE, "[indelible.attacks]\nft = plug:Halve\ntwice = plug:Halve\n")
    install("other", MODULE, "[indelible.attacks]\ntwice = other:Halve\n")
    assert ATTACKS["ft"].title == "Fine-tuning"
    taken, twice = ATTACKS.load_installed()
    assert re.search(r"entry point 'ft' .* the name belongs to 'Fine-tuning' already", taken)
    assert re.search(r"entry point 'twice' .*is there more than once", twice)
    with pytest.raises(InputError, match="plug:Halve of plug"):
        ATTACKS["twice"]
