"""The documentation tells the truth: links resolve, examples run, commands parse, files exist."""

import doctest
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import indelible
from indelible.attacks import ATTACKS
from indelible.bench.preset import read_preset
from indelible.cli import COMMANDS, parser
from indelible.cli.known_names import installed_methods
from indelible.embedding import EMBEDDINGS
from indelible.keys import MARKS
from indelible.report import TABLES
from indelible.verification.suspects import SUSPECTS
from tests.conftest import TinyNet, stripes
from tests.processes import ALONE

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "addons/companions/README.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts),
    *sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
# Files that CONTRIBUTING tells a reader to write, and those of a user.
EXAMPLES = {
    "src/indelible/attacks/noisy_ft.py", "tests/attacks/test_noisy_ft.py", "docs/attacks/noisy-ft.md",
}  # fmt: skip
# A server that `python experiments/serve.py RUN` starts.
ADDRESS = re.compile(r"http://(?:localhost|127\.0\.0\.1):8080/v2/models/model")
# A directive, such as ```{include} FILE, is a block too: its end must not be taken for a beginning.
FENCE = re.compile(r"^```(\w*|\{[\w-]+\}[^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(
    r"`((?:src|tests|docs|tools|experiments|addons|\.ci)/[\w./-]+|[A-Z]+(?:\.md)?|[\w.-]+\.(?:toml|yaml|txt))`"
)
SHOWN = re.compile(r"^print\(.*\)  # -> (.*)$", re.MULTILINE)
COMMAND = re.compile(r"^\$ indelible", re.MULTILINE)
RATE = re.compile(r"WSR[^.|\n]{0,40}?\d+(?:\.\d)? ?%|\d+(?:\.\d)? ?% WSR|^\|[^\n]*\bWSR\b", re.MULTILINE)
NOT_FILES = {
    "MODELS",
    "SOURCES",
    "ATTACKS",
    "EMBEDDINGS",
    "FIGURES",
    "COMPANIONS",
    "TEST",
    "CLASS",
    "APP",
    "NAME",
    "classes.txt",
    "RGB",
    "NCHW",
    "RUN",
    "TOKEN",
    "README.txt",
    "shake.toml",
}


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in FENCE.findall(page.read_text(encoding="utf-8")) if found == language]


@pytest.mark.parametrize(
    ("pattern", "pages"),
    [
        (LINK, {"README.md", "index.md", "threat-model.md", "ft.md", "app.md", "own-loop.ipynb"}),
        (re.compile(r"\[[^\]]*\]\([^)\s]*#[^)\s]+\)"), {"README.md", "faq.md", "results.md", "benchmark.md"}),
        (FILE, {"architecture.md", "CONTRIBUTING.md", "contributing.md", "CHANGELOG.md", "app.md"}),
        (SHOWN, {"data.md", "verification.md"}),
        (COMMAND, {"README.md", "CONTRIBUTING.md", "suspects.md", "benchmark.md", "ft.md"}),
        (RATE, {"analysis.md", "results.md", "ft.md", "app.md"}),
    ],
    ids=["links", "anchors", "files", "printed", "commands", "rates"],
)
def test_what_is_checked_is_found(pattern: re.Pattern[str], pages: set[str]) -> None:
    """The tests below go over what a pattern finds: here it finds something on pages that are known to have it."""
    assert {page.name for page in PAGES if pattern.search(page.read_text(encoding="utf-8"))} >= pages


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_relative_links_resolve(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(prose):
        if target.startswith(("http://", "https://", "#")):
            continue
        path = (page.parent / target.partition("#")[0]).resolve()
        assert path.exists(), f"{page.name} links to {target}, which does not exist"


# In the page of commands, names in capitals stand for what the reader types.
NAMING = [page for page in PAGES if page.name != "commands.md"]


@pytest.mark.parametrize("page", NAMING, ids=[str(page.relative_to(ROOT)) for page in NAMING])
def test_files_that_are_named_exist(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for name in set(FILE.findall(prose)) - EXAMPLES - NOT_FILES:
        assert (ROOT / name).exists(), f"{page.name} names {name}, which does not exist"


class TinyData:
    """The names that examples take for granted, at a size that runs in a second."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        data, test = stripes(120, 10), stripes(300, 10, seed=1)
        pair = TensorDataset(data.images.float() / 255, data.labels)
        self.names: dict[str, Any] = {
            "__name__": "example",
            "indelible": indelible,
            "torch": torch,
            "model": TinyNet(classes=10),
            "key": indelible.Key.create(kind="noise", classes=10, shape=data.shape, target=0, secret=bytes(32)),
            "carriers": (data.images, data.labels),
            "loader": DataLoader(pair, batch_size=40),
            "owner_data": data,
            "attacker_data": stripes(80, 10, seed=2),
            "test_data": test,
            "cross_entropy": torch.nn.functional.cross_entropy,
        }
        self.names["optimizer"] = torch.optim.SGD(self.names["model"].parameters(), lr=0.01)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cap every training run at two steps on the CPU; all else is as in the example."""
    from indelible.train import fit, job

    def two_steps(model: Any, data: Any, settings: Any, **rest: Any) -> Any:
        return fit(model, data, settings.but(epochs=1, max_steps=2), **{**rest, "device": "cpu"})

    monkeypatch.setattr(job, "fit", two_steps)


@pytest.fixture
def _registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what an example registers."""
    for registry in (ATTACKS, EMBEDDINGS, MARKS, SUSPECTS, TABLES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


QUIET = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
    "accelerator": "cpu", "max_steps": 2,
}  # fmt: skip


def trainers(folder: Path) -> dict[str, Any]:
    """Return what the page of the callbacks takes for granted: a module and a model of the two trainers."""
    lightning, transformers = pytest.importorskip("pytorch_lightning"), pytest.importorskip("transformers")

    class Classifier(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = TinyNet(classes=10)

        def forward(self, images: torch.Tensor) -> Any:
            return self.net(images)

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    images = stripes(40, 10)
    return {
        "module": Classifier(),
        "model": transformers.ViTForImageClassification(
            transformers.ViTConfig(image_size=32, patch_size=16, num_labels=10, **sizes)
        ),
        "arguments": transformers.TrainingArguments(
            output_dir=str(folder), max_steps=2, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True
        ),
        "data": [
            {"pixel_values": image * 2 - 1, "labels": label}
            for image, label in zip(images.images.float() / 255, images.labels, strict=True)
        ],
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
    }


WITH_CODE = [page for page in PAGES if blocks(page, "python") and page != ROOT / "README.md"]


@pytest.mark.usefixtures("short", "_registries")
@pytest.mark.parametrize("page", WITH_CODE, ids=[page.name for page in WITH_CODE])
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page are one script, in order; `# not run` at the top of a block leaves it out.

    What stands behind ``# ->`` is what the line prints.
    """
    monkeypatch.chdir(tmp_path)
    page_module = ModuleType("my_attacks")  # CONTRIBUTING writes this file and then names it
    names = vars(page_module)
    names.update(TinyData().names)
    if page.name == "integrations.md":
        warnings.simplefilter("ignore")  # of the two trainers; pytest restores the filters
        trainer = partial(pytest.importorskip("pytorch_lightning").Trainer, **QUIET)
        monkeypatch.setattr("pytorch_lightning.Trainer", trainer)
        names.update(trainers(tmp_path))
    monkeypatch.setitem(sys.modules, "my_attacks", page_module)
    for number, code in enumerate(blocks(page, "python"), 1):
        if not code.startswith("# not run"):
            exec(compile(code, f"{page.name}, block {number}", "exec"), names)  # noqa: S102 - our own pages
            for shown in SHOWN.findall(code):
                assert f"{shown}\n" in capsys.readouterr().out


def test_the_first_page_is_read_in_two_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"[^\s|]+", text)) <= 650
    lines = [line for line in blocks(ROOT / "README.md", "python")[0].splitlines() if line]
    assert len(lines) == 10
    assert sum(code.count("$ indelible ") for code in blocks(ROOT / "README.md", "console")) == 5


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_the_first_lines_of_python_end_in_owned(tmp_path: Path) -> None:
    """On the embedded data, with nothing given but what the page says: protected, stolen, proven."""
    code = blocks(ROOT / "README.md", "python")[0]
    (shown,) = blocks(ROOT / "README.md", "text")
    told = "print('OWNED' if verdict.owned else 'NOT SHOWN', verdict.p_value)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{told}"], env=ALONE, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    *said, end = done.stdout.splitlines(keepends=True)
    assert doctest.OutputChecker().check_output(shown, "".join(said), doctest.ELLIPSIS)
    last = end.split()
    assert last[0] == "OWNED", done.stdout
    assert float(last[1]) <= 1e-6


@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_the_first_commands_end_in_owned(tmp_path: Path) -> None:
    """As typed: every command ends well, and the verdict after fine-tuning is positive at 1e-6."""
    program = Path(sys.executable).with_name("indelible")
    said = {}
    first = next(code for code in blocks(ROOT / "README.md", "console") if "$ indelible" in code)
    for line in first.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if line.startswith("$ indelible"):
            done = subprocess.run(
                [program, *words[1:]], env=ALONE, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            said[words[1]] = done.stdout
    assert said["verify"].startswith("OWNED at alpha 1e-06")
    assert "OWNED at alpha 1e-06" in said["embed"]
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the attacks that CONTRIBUTING tells a reader to write."""
    written = lambda which: ["noisy-ft", "shake", *installed_methods(which)]  # noqa: E731
    monkeypatch.setattr("indelible.cli.known_names.installed_methods", written)
    for code in blocks(page, "console"):
        for line in code.splitlines():
            if COMMAND.match(line):
                words = shlex.split(line.removeprefix("$ "), comments=True)[1:]
                parser().parse_args(words)
            elif line.startswith("$ python experiments/"):
                assert (ROOT / line.split()[2]).is_file(), f"{page.name} runs {line.split()[2]}, which does not exist"


def test_the_reference_has_every_public_name_and_no_other() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    found = re.findall(r"^\.\. auto\w+:: indelible\.(\w+)$", text, re.MULTILINE)
    assert sorted(found) == sorted(indelible.__all__)


@pytest.mark.parametrize(
    ("registry", "folder"), [(EMBEDDINGS, "methods"), (ATTACKS, "attacks")], ids=["methods", "attacks"]
)
def test_every_method_has_a_card_with_every_setting(registry: Any, folder: str) -> None:
    for info in registry.entries():
        card = ROOT / "docs" / folder / f"{info.name}.md"
        assert card.is_file(), f"{info.name} has no card {card.relative_to(ROOT)}"
        text = card.read_text(encoding="utf-8")
        for setting in fields(info.build):
            assert f"`{setting.name}`" in text, f"{card.name} does not name the setting {setting.name}"
        assert f"{folder}/{info.name}.md" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_table_of_many_devices_has_every_attack_in_its_row() -> None:
    rows = re.findall(
        r"^\| (`.*?`) \| (yes|only|refused)", (ROOT / "docs" / "many-devices.md").read_text("utf-8"), re.MULTILINE
    )
    told = {name: answer for names, answer in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert {name for name, answer in told.items() if answer == "yes"} == {
        info.name for info in ATTACKS.entries() if not info.build().why_one_process()
    }
    assert sorted(told) == sorted(info.name for info in ATTACKS.entries())


@pytest.mark.parametrize("program", ["experiments/write_tables.py", "tools/write_commands_page.py"])
def test_written_pages_are_up_to_date(program: str) -> None:
    """Tables say what the records say, and the page of commands what the parsers say."""
    done = subprocess.run(
        [sys.executable, program, "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"run: python {program}\n{done.stdout}{done.stderr}"


VERDICT = re.compile(r"OWNED|NOT SHOWN|verdict|p-value|p ≤|p = |claims granted", re.IGNORECASE)
WRITTEN = ("CHANGELOG.md", "commands.md")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.suffix == ".md" and page.name not in WRITTEN], ids=lambda page: page.name
)
def test_no_rate_of_hits_without_its_verdict(page: Path) -> None:
    """Each part of a page with a watermark success rate also has the verdict, or says that none was made."""
    for part in re.split(r"^(?=#+ )", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE):
        rate = RATE.search(part)
        assert not rate or VERDICT.search(part), f"{page.name}, {part.splitlines()[0]!r}: {rate[0]!r} has no verdict"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_no_line_begins_with_a_percent_sign(page: Path) -> None:
    """The renderer takes such a line for a comment and leaves it out."""
    assert not re.findall(r"^\s*%.*", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)


def test_ten_questions_are_answered_two_clicks_from_the_front_page() -> None:
    """Front page, questions, place: each answer names one place, and both front pages link to the questions."""
    for front, link in (("README.md", "(docs/faq.md)"), ("docs/index.md", "(faq.md)")):
        assert link in (ROOT / front).read_text(encoding="utf-8")
    questions = re.split(r"^## ", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(questions) >= 10
    places = []
    for text in questions:
        heading, *_, last = text.strip().split("\n\n")
        assert heading.endswith("?")
        (place,) = LINK.findall(text)
        assert last.startswith("**Read on:** [")
        assert place in last
        places.append(place)
    assert len(set(places)) == len(places), "two questions have the same place"


def test_questions_of_a_newcomer_are_asked() -> None:
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    for words in (
        "my ResNet",
        "carrier",
        "three keys",
        "NOT SHOWN",
        "API",
        "by mistake",
        "forge",
        "remove",
        "lose the key",
    ):
        assert re.search(rf"^## .*{words}.*\?", text, re.MULTILINE), f"no question has the words {words!r}"


def test_anchors_of_links_are_headings() -> None:
    """A link to a part of a page leads to a heading that is there."""
    for page in (page for page in PAGES if page.suffix == ".md"):
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            name, _, anchor = target.partition("#")
            if target.startswith("http") or not anchor:
                continue
            path = (page.parent / name).resolve() if name else page
            heads = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{page.name} links to {target}; {path.name} has no such heading"


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
        if page.is_relative_to(ROOT / "docs") and name != "index.md":
            assert f"]({name})" in index, f"docs/index.md does not link to {name}"


def test_every_command_is_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert all(f"`{command}`" in text for command in COMMANDS)


def test_the_notice_carries_the_licence_of_the_embedded_images() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    licence = ROOT / "src" / "indelible" / "data" / "assets" / "LICENSE.fashion-mnist.txt"
    words = licence.read_text(encoding="utf-8").partition("The MIT License")[2]
    assert " ".join(words.split()) in " ".join(notice.split())


def test_the_preset_of_ones_own_can_be_read() -> None:
    (text,) = blocks(ROOT / "docs" / "benchmark.md", "toml")
    preset = read_preset("mine", text)
    assert [kind.label for kind in preset.kinds] == ["content", "faint"]
    assert [attack.label for attack in preset.attacks] == ["ft", "gentle"]
