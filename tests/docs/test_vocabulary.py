"""Each term has one meaning and one name: words that were given up do not come back.

The glossary (docs/glossary.md) says what is used instead. Looked at: README, CONTRIBUTING, docs, examples, and in src
the comments, docstrings and messages; names in code are not looked at.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADDON = "addons/companions/src"
SUFFIXES = {".md", ".ipynb", ".py", ".toml", ".html", ".j2"}
UNITS = "epoch|step|draw|label|level|round|cell|image|query|mark|class|batch"
COUNTED = "rows?|lines?|images|passes|steps|(?:milli)?seconds|bits|bytes|queries|once|twice"


@dataclass(frozen=True)
class Abandoned:
    """A word or phrase that is not used.

    Attributes:
        pattern: A regular expression; a space stands for any white space. Case does not matter.
        instead: What to write.
        why: Why it was given up.
        exceptions: Files in which it means something else, and what.
        pages_only: Look at pages, not at the comments and strings of code.
    """

    pattern: str
    instead: str
    why: str
    exceptions: Mapping[str, str] = field(default_factory=dict)
    pages_only: bool = False

    def found_in(self, text: str) -> Iterator[int]:
        """Yield the lines on which it occurs."""
        spaces = r"(?:\s|#:?(?=\s))+"  # also over the end of a line, in a comment too
        for match in re.finditer(self.pattern.replace(" ", spaces), text, re.IGNORECASE):
            yield text.count("\n", 0, match.start()) + 1


REHEARSE = "means the attack `rehearse`"
BACKDOOR = "describes a paper on backdoors in that paper's words"
ABANDONED = [
    # Terms of the glossary.
    Abandoned(
        r"(?<![-\w])trigger(s|ed|ing)?\b(?![-\w])", "mark, or watermark sample",
        "in the literature it is the pattern, the marked image or the set of images",
        {
            "docs/attacks/super-ft.md": BACKDOOR, "docs/attacks/i-bau.md": BACKDOOR,
            "docs/attacks/invert.md": "the pattern that the search finds, whether it is a mark or not",
            "docs/attacks/measured.md": BACKDOOR, "docs/attacks/nnl.md": "the pattern that the search finds",
            "docs/attacks/nad.md": "the title of its paper",
            "docs/threat-model.md": "a forger's pattern, no mark of a key",
            "src/indelible/attacks/nad.py": "the title of its paper", "src/indelible/attacks/preprocess.py": BACKDOOR,
        },
    ),
    Abandoned(
        r"\bpoison(s|ed|ing)?\b", "watermark sample, or marked",
        "the owner marks his own data; nobody is poisoned", {"docs/attacks/fst.md": BACKDOOR},
    ),
    Abandoned(r"\b(clean|standard|natural) accuracy\b", "benign accuracy (BA)", "one name for one number"),
    Abandoned(
        r"\b(watermark|trigger|verification) (accuracy|detection rate)\b", "watermark success rate (WSR)",
        "one name for one number",
    ),
    Abandoned(r"\b(host|cover|base|background) images?\b", "carrier", "one name for the image that a mark is drawn on"),
    Abandoned(
        r"\b(false|wrong|fake|dummy|random) keys?\b", "decoy", "one name for a key of the same settings to compare with"
    ),
    Abandoned(r"\bcode[- ]words?\b|\bcode[- ]books?\b", "codebook", "one spelling"),
    Abandoned(r"\bpresets? `*\"?(cpu|paper)\b(?!-)", "scale", "a preset is a table of the benchmark"),
    Abandoned(
        r"\brecipes? of (an|the) attacks?\b|\battacks?'s? recipes?\b", "settings of an attack",
        "a recipe says how strong an embedded watermark is",
    ),
    Abandoned(
        r"(?<![\w-])--(queries|test|paper-literal)\b(?!-)", "--max-samples, --procedure, --scheme",
        "options have the names of the arguments in Python",
    ),
    Abandoned(r"\bsuspicious models?\b|\bsuspected models?\b", "suspect", "one name for the model that is asked"),
    Abandoned(r"\bNOT OWNED\b", "NOT SHOWN", "a negative verdict does not say that the model is not yours"),
    Abandoned(r"\badversary\b|\bdefenders?\b", "thief or attacker; owner", "one name for each side"),
    Abandoned(
        r"\brehears(e|es|ing|al|als)\b", "dry run", "the name of an attack; `rehearsed` is that of a method",
        {
            "docs/methods/rehearsed.md": REHEARSE, "src/indelible/embedding/rehearsed.py": REHEARSE,
            "docs/attacks/rehearse.md": REHEARSE, "docs/experiments.md": REHEARSE, "docs/faq.md": REHEARSE,
            "docs/index.md": REHEARSE, "docs/limits.md": REHEARSE, "docs/many-devices.md": REHEARSE,
            "docs/reference.md": REHEARSE, "docs/threat-model.md": REHEARSE, "docs/verification.md": REHEARSE,
            "src/indelible/attacks/rehearse.py": REHEARSE,
            "src/indelible/bench/presets/removal-2026-cpu.toml": REHEARSE,
            "src/indelible/embedding/mixing.py": REHEARSE,
        },
    ),
    Abandoned(
        r"\b(full|cheaper|cpu|cpu's|`cpu`) budget\b", "scale",
        "a budget is what an attack may cost in accuracy, or how many images a server may get",
    ),
    Abandoned(r"\bwatermark images?\b", "watermark sample", "one name for a carrier with its mark", pages_only=True),
    Abandoned(r"\bpirates?\b|\bstealers?\b|\bpirated\b", "thief", "one name for each side"),
    Abandoned(r"\b(removal|erasure) methods?\b", "attack", "one name"),
    # Plain words.
    Abandoned(r"\bgrey", "gray", "one spelling", {"src/indelible/data/sources/folder.py": "the name of an argument"}),
    Abandoned(r"(?<!\|)\bpercent\b(?![(\"])(?! [}\|])", "per cent, or %", "one spelling"),  # not the filter
    Abandoned(r"\bwash(es|ed|ing)?\b", "remove", "a picture where a plain word is at hand"),
    Abandoned(r"\bbut [^.]{1,40} came\b", "got", "say what was expected, what was given, and what to do"),
    Abandoned(r"\bwhat came out\b", "result", "hard to read"),
    Abandoned(r"\bevery other (time|step|epoch|row)\b", "50 %, or every second", "easily read as 'all the others'"),
    Abandoned(r"\bno more often than\b", "at most", "a double negation"),
    Abandoned(
        rf"\b({COUNTED}|more) an? ({UNITS})\b(?! (uses|passes|with|takes|is|shows))", "per",
        "'one row an epoch' is hard to read", {"docs/speed.md": "has tables as experiments/speed.py writes them"},
    ),
    Abandoned(r"\banew\b", "again", "not known to all readers", pages_only=True),
    Abandoned(r"\blikewise\b", "in the same way, or also", "not known to all readers", pages_only=True),
    Abandoned(r"\breckon(s|ed|ing)?\b", "estimate, or count", "not known to all readers", pages_only=True),
    Abandoned(r"\bbroken off\b", "interrupted", "hard to read"),
    Abandoned(r"\bsigns? of life\b", "time stamp", "a picture where a plain word is at hand"),
    Abandoned(r"\blets? go of\b|\bhanded over\b", "free, close or pass", "a picture where a plain word is at hand"),
    Abandoned(r"\bstands in a file of its own\b", "is in", "hard to read"),
    Abandoned(r"\b(leaves|of) the house\b", "for others; of the package", "a picture where a plain word is at hand"),
]  # fmt: skip


def prose(path: Path) -> str:
    """Return the words of a file at their places; of Python code only comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    kept = [[" "] * len(line) for line in text.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.STRING, tokenize.COMMENT}:
            for offset, line in enumerate(token.string.splitlines()):
                start = token.start[1] if offset == 0 else 0
                kept[token.start[0] - 1 + offset][start : start + len(line)] = line
    return "\n".join("".join(line) for line in kept)


@cache
def texts() -> dict[str, str]:
    """Return the words of every file by its path."""
    single = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "addons" / "companions" / "README.md"]
    found = (path for folder in ("docs", "examples", "src", ADDON) for path in sorted((ROOT / folder).rglob("*")))
    chosen = (path for path in (*single, *found) if path.suffix in SUFFIXES and "_build" not in path.parts)
    return {path.relative_to(ROOT).as_posix(): prose(path) for path in chosen}


@pytest.mark.parametrize("word", ABANDONED, ids=lambda word: word.instead)
def test_an_abandoned_word_is_not_used(word: Abandoned) -> None:
    found = [
        f"{name}:{line}"
        for name, text in texts().items()
        if name not in word.exceptions and not (word.pages_only and name.startswith(("src/", ADDON)))
        for line in word.found_in(text)
    ]
    assert not found, f"write {word.instead!r} ({word.why}) in {', '.join(found)}"


@pytest.mark.parametrize("word", [word for word in ABANDONED if word.exceptions], ids=lambda word: word.instead)
def test_every_exception_is_still_needed(word: Abandoned) -> None:
    idle = [name for name in word.exceptions if not any(word.found_in(texts().get(name, "")))]
    assert not idle, f"not needed for {word.instead!r} any more: {idle}"


def test_a_phrase_is_found_over_the_end_of_a_line() -> None:
    phrase = Abandoned(r"\bbroken off\b", "interrupted", "")
    assert list(phrase.found_in("one\n    # was broken\n    # off there\n")) == [2]
    assert list(phrase.found_in("unbroken offer")) == []


def test_only_comments_and_strings_of_code_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('grey = 1  # a comment\n"""Doc\n  string."""\n', encoding="utf-8")
    assert prose(path).split() == ["#", "a", "comment", '"""Doc', 'string."""']


def test_every_term_of_the_glossary_is_there_once() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    terms = [line for line, after in pairwise(lines) if after.startswith(": ")]
    assert terms == sorted(terms, key=str.lower)
    assert len(set(terms)) == len(terms)
    needed = {"Attack", "Carrier", "Cell", "Codebook", "Decoy", "Hit", "Mark", "Preset", "Recipe", "Run", "Scale"}
    assert {"Benign accuracy (BA)", "Watermark success rate (WSR)", "Suspect", "Verdict"} | needed <= {*terms}
