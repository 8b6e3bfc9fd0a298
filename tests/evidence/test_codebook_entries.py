"""A codebook in evidence: committed, claimed and checked without the secret; every way to cheat is found and named."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from safetensors.torch import load, save
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import canonical_json
from indelible.base.merkle import tree_root
from indelible.cli.terminal import describe_check
from indelible.data.images import ImageData
from indelible.evidence import Commitment, check_bundle, claim, commit
from indelible.evidence.canonical import canonical
from indelible.evidence.codebook_entries import pool_rows, stamped
from indelible.evidence.decision import judge
from indelible.evidence.opening import Questions
from indelible.keys.codebook import chosen_rows, class_key, drawn_classes, mark_leaf, mark_seed
from indelible.keys.derive import Choices
from indelible.keys.key import Key, WatermarkSamples
from indelible.report.bundle_page import render_bundle
from indelible.verification import verify
from tests.conftest import SECRET, SHAPE, stripes
from tests.evidence.cases import Case
from tests.evidence.test_parts import slow_root

CARRIERS = 24
KINDS = ["bound", "auditor", "noise", "generated", "pool"]


def made_key(kind: str, data: ImageData) -> Key:
    """Return a codebook of four classes; 4^-16 is 2.3e-10."""
    if kind == "pool":
        source = stripes(16 * 12, classes=16, seed=5)
        return Key.create(kind="unrelated", classes=4, shape=SHAPE, source=source, secret=SECRET)
    if kind == "generated":
        return Key.create(kind="unrelated", classes=4, shape=SHAPE, secret=SECRET)
    content: Any = "noise" if kind == "noise" else "content"
    return Key.create(
        kind=content, classes=4, shape=SHAPE, carriers=None if kind == "auditor" else data, secret=SECRET
    )  # fmt: skip


class Knows:
    """A model that knows most samples of a codebook by heart and answers all else by the sum of its pixels."""

    def __init__(self, samples: WatermarkSamples, *, every: int = 5) -> None:
        self.known = {
            image.numpy().tobytes(): int(label)
            for row, (image, label) in enumerate(zip(samples.images, samples.labels, strict=True)) if row % every
        }  # fmt: skip

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        sums = images.to(torch.int64).sum((1, 2, 3)) % 4
        found = [self.known.get(image.numpy().tobytes(), own) for image, own in zip(images, sums.tolist(), strict=True)]
        return torch.tensor(found)


class Book(Case):
    """A commitment to a codebook and a claim with it."""

    def __init__(self, root: Path, kind: str = "bound", **options: Any) -> None:
        self.root, self.commitment, self.bundle, self.authority = root, root / "commitment", root / "bundle", None
        self.data = stripes(CARRIERS, seed=1)
        self.key = made_key(kind, self.data)
        self.suspect = Knows(self.key.samples(self.data, purpose="verify", count=options.get("samples")))
        self.made = commit(self.key, self.data, self.commitment, owner="Tester", model="ab" * 32, **options)
        self.verdict = claim(self.commitment, self.key, self.data, self.suspect, self.bundle, challenge="dice 4 1 6")

    @property
    def document(self) -> Any:
        return json.loads((self.bundle / "claim.json").read_bytes())


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return Book(tmp_path_factory.mktemp("codebook"))


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return Book(tmp_path_factory.mktemp("codebook-auditor"), "auditor")


@pytest.mark.parametrize("kind", KINDS)
def test_checked_without_the_secret_and_the_answer_is_that_of_verify(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"samples": 16 * 6} if kind == "generated" else {}
    made = Book(tmp_path / "made", kind, **options)
    shutil.move(made.bundle, tmp_path / "bundle")
    shutil.move(made.root, tmp_path / "hidden")  # no key, no commitment folder within reach
    checked = check_bundle(tmp_path / "bundle", challenge="dice 4 1 6")
    assert checked.holds, checked.steps[-1]
    found = verify(made.suspect, made.key, made.data, accuracy=False, max_samples=options.get("samples"))
    assert checked.claim is not None
    claimed = checked.claim["verdict"]
    assert claimed == json.loads(json.dumps(made.verdict))
    assert (claimed["p_value"], claimed["owned"], claimed["alpha"]) == (found.p_value, found.owned, found.alpha)
    assert (claimed["hits"], claimed["trials"], claimed["queries"]) == (found.hits, found.trials, found.queries)
    assert (claimed["table"], claimed["drawn"]) == ([list(row) for row in found.table], list(found.drawn))
    assert (claimed["held"], claimed["binding"]) == (found.counts["held"], found.binding)
    assert found.owned
    assert checked.drawn
    assert "Marks: their classes were drawn, not chosen" in describe_check(checked)
    assert any("tried N codebooks" in caveat for caveat in checked.caveats)
    assert checked.carriers == {"bound": "set aside", "noise": "set aside", "auditor": "open"}.get(kind, "none")
    assert check_bundle(tmp_path / "bundle", key=made.key).derived


def decided(answers: Tensor, true: Tensor | None, drawn: Tensor, *, alpha: float) -> dict[str, Any]:
    """Return the verdict on the ``answers`` to every mark on every carrier, each the one pixel of its sample."""
    stated: Any = SimpleNamespace(
        alpha=alpha, claims=1, key={"classes": 2, "scheme": "derived"}, codebook={"carriers": "none"}, test="codebook"
    )
    questions = Questions(samples=answers.reshape(-1, 1, 1, 1), labels=drawn, true=true)
    return judge(stated, questions, lambda images: images.flatten())


def test_by_hand() -> None:
    """Two marks, two classes, three carriers: one of four draws does as well as (0, 1)."""
    answers, drawn = torch.tensor([[0, 0, 1], [1, 1, 1]]), torch.tensor([0, 1])
    found = decided(answers, None, drawn, alpha=0.25)
    # N = [[2, 1], [0, 3]], so S = [[2, -2], [-2, 2]] and T = 4; the four draws give 0, 4, -4 and 0.
    assert (found["p_value"], found["hits"], found["trials"], found["held"]) == (0.25, 5, 6, 2)
    assert found["owned"]
    assert "2 of 2 opened marks" in found["sentence"]
    true = torch.tensor([0, 1, 1])
    found = decided(answers, true, drawn, alpha=0.2)
    # Answers that are the true class do not count: N = [[1, 0], [0, 1]]; two and one carriers are of another class.
    assert (found["p_value"], found["hits"], found["trials"], found["owned"]) == (0.25, 2, 3, False)
    assert found["table"] == [[1, 0], [0, 1]]
    other = decided(answers, true, torch.tensor([1, 1]), alpha=0.2)
    assert other["p_value"] == 0.75


def hkdf(label: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"indelible/v1/{label}".encode()).derive(SECRET)


def test_what_is_committed_what_is_shown_what_stays_secret(tmp_path: Path) -> None:
    made = Book(tmp_path, claims=2, alpha=1e-3)
    statement, shown = json.loads(made.made.content), made.document
    entries = [b"indelible/codebook mark/1:" + i.to_bytes(4, "big") + hkdf(f"codebook/mark/{i}") for i in range(16)]
    assert statement["root"] == slow_root(entries).hex()
    assert statement["codebook"] == {
        "class_key": hashlib.sha256(hkdf("codebook/classes")).hexdigest(),
        "choice_key": hashlib.sha256(hkdf("carriers/verify")).hexdigest(),
        "each": 200, "carriers": "set aside", "count": CARRIERS,
    }  # fmt: skip
    assert (statement["test"], statement["samples"], statement["claims"], statement["opens"]) == ("codebook", 16, 2, 8)
    assert {name: statement["key"][name] for name in ("kind", "classes", "marks", "bound", "version", "scheme")} == {
        "kind": "content", "classes": 4, "marks": 16, "bound": made.key.bound, "version": made.key.public()["version"],
        "scheme": "derived",
    }  # fmt: skip
    content = b"".join(path.read_bytes() for path in made.bundle.iterdir())
    opened = {entry["index"] for entry in shown["opened"]}
    assert len(opened) == 8
    for number in range(16):
        seed = hkdf(f"codebook/mark/{number}").hex().encode()
        assert (seed in content) == (number in opened)
        assert seed not in made.made.content
    for hidden in (SECRET, SECRET.hex().encode()):
        assert hidden not in content
    assert shown["codebook"]["class_key"] == hkdf("codebook/classes").hex()
    assert shown["codebook"]["class_key"].encode() not in made.made.content


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_gives_the_samples_of_the_key(kind: str) -> None:
    """The key itself is the slow reference: seeds, choice key and carriers lead to the same images."""
    data = stripes(40, seed=1)
    key = made_key(kind, data)
    samples = key.samples(data, purpose="verify", count=16 * 6)
    seeds = [mark_seed(SECRET, number) for number in range(16)]
    if kind == "pool":
        assert key.pool is not None
        rows = [row for number, seed in enumerate(seeds) for row in pool_rows(seed, number, 12, 6)]
        assert torch.equal(key.pool.flatten(0, 1)[rows], samples.images)
        return
    rows = chosen_rows(Choices(hkdf("carriers/verify")), 40, 6).tolist()
    if kind != "generated":
        assert rows == samples.carriers[:6].tolist()
    assert torch.equal(stamped(key.public(), seeds, data.images[rows], 6), samples.images)


def test_a_seed_that_was_sought_draws_all_classes_anew(book: Book, tmp_path: Path) -> None:
    """A forger keeps the class key and seeks a seed for one mark: the classes of the others are not what they were."""
    root = book.made.root
    seeds = [mark_seed(SECRET, number) for number in range(16)]
    bound = bytes.fromhex(book.key.bound or "")

    def classes(seeds: list[bytes]) -> list[int]:
        own = tree_root([mark_leaf(number, seed) for number, seed in enumerate(seeds)])
        drawn: list[int] = drawn_classes(class_key(SECRET), own + bound, classes=4, marks=16).tolist()
        return drawn

    assert tree_root([mark_leaf(number, seed) for number, seed in enumerate(seeds)]).hex() == root
    assert classes(seeds) == book.key.codebook().classes.tolist() == book.verdict["drawn"]
    tries = [classes([bytes([turn]) * 32, *seeds[1:]])[1:] for turn in range(200)]
    assert len({tuple(one) for one in tries}) == 200
    kept = sum(one == two for turn in tries for one, two in zip(turn, classes(seeds)[1:], strict=True))
    assert abs(kept - 750) < 120, "3000 draws of four classes: each stays with one chance in four, within 5 deviations"


def test_several_claims_open_other_marks(tmp_path: Path) -> None:
    made = Book(tmp_path, claims=2, alpha=1e-3)
    checked = check_bundle(made.bundle)
    assert checked.holds, checked.steps[-1]
    assert made.verdict["alpha"] == 5e-4
    assert made.verdict["p_value"] >= 4.0**-8, "the p-value is that of the opened marks"
    claim(made.commitment, made.key, made.data, made.suspect, tmp_path / "second")
    second = check_bundle(tmp_path / "second")
    assert second.holds
    first, other = ({entry["index"] for entry in one["opened"]} for one in (made.document, second.claim or {}))
    assert first | other == set(range(16))
    assert not first & other
    with pytest.raises(InputError, match="allows 2 claims"):
        claim(made.commitment, made.key, made.data, made.suspect, tmp_path / "third")
    subset = made.resigned(tmp_path / "b", "claim.json", lambda one: one["opened"].reverse())
    assert check_bundle(subset).failed == "challenge", "the marks are those of the challenge, not of the claimant"


def test_one_claim_that_opens_everything_may_be_made_again(book: Book, tmp_path: Path) -> None:
    own = tmp_path / "commitment"
    shutil.copytree(book.commitment, own)
    again = claim(own, book.key, book.data, book.suspect, tmp_path / "b")
    assert again == book.verdict
    checked = check_bundle(tmp_path / "b")
    assert checked.holds
    assert any("claim number 2" in caveat for caveat in checked.caveats)
    assert not any("claim number" in caveat for caveat in check_bundle(book.bundle).caveats)


def test_a_model_without_the_marks(book: Book, tmp_path: Path) -> None:
    own = tmp_path / "commitment"
    shutil.copytree(book.commitment, own)
    verdict = claim(
        own, book.key, book.data, Knows(book.key.samples(book.data, purpose="verify"), every=1), tmp_path / "b"
    )
    assert not verdict["owned"]
    assert "Not shown" in verdict["sentence"]
    assert check_bundle(tmp_path / "b").holds, "an honest record of a negative verdict"


class TestAuditorsCarriers:
    def test_compared_with_what_he_brought(self, free: Book) -> None:
        alone = check_bundle(free.bundle)
        assert (alone.holds, alone.carriers) == (True, "open")
        assert any("--data" in caveat for caveat in alone.caveats)
        assert "the carriers are not shown to be the auditor's (--data)" in describe_check(alone)
        own = check_bundle(free.bundle, carriers=free.data)
        assert (own.holds, own.carriers) == (True, "compared")
        assert not any("fitted them" in caveat for caveat in own.caveats)

    @pytest.mark.parametrize("how", ["fewer", "pixel", "class", "order"])
    def test_other_images_than_he_brought(self, free: Book, how: str) -> None:
        images, labels = free.data.images.clone(), free.data.labels.clone()
        if how == "pixel":
            images[:, 0, 0, 0] ^= 1
        elif how == "class":
            labels = (labels + 1) % 4
        elif how == "order":
            images, labels = images.flip(0), labels.flip(0)
        else:
            images, labels = images[:-1], labels[:-1]
        checked = check_bundle(free.bundle, carriers=ImageData(images, labels, free.data.classes, "mine"))
        assert (checked.failed, "you gave" in checked.steps[-1].says) == ("images", True)

    def test_another_set_is_another_claim(self, free: Book, tmp_path: Path) -> None:
        """A claim that was broken off is not continued on other images: its log would not fit the bundle."""
        own, other = tmp_path / "commitment", stripes(CARRIERS, seed=7)
        shutil.copytree(free.commitment, own)
        whole = free.suspect

        class Broken:
            def predict(self, images: torch.Tensor) -> torch.Tensor:
                self.asked = getattr(self, "asked", 0) + 1
                if self.asked > 2:
                    raise InputError("the line is dead")
                answers: torch.Tensor = whole.predict(images)
                return answers

        with pytest.raises(InputError, match="line is dead"):
            claim(own, free.key, free.data, Broken(), tmp_path / "b", challenge="x")
        with pytest.raises(InputError, match="line is dead"):
            claim(own, free.key, other, Broken(), tmp_path / "b", challenge="x")
        states = [json.loads(path.read_text()) for path in sorted(own.glob("claim-*.json"))]
        assert [state["number"] for state in states] == [0, 1, 2]
        with pytest.raises(InputError, match="line is dead"):
            claim(own, free.key, other, Broken(), tmp_path / "b", challenge="x")
        assert len(list(own.glob("claim-*.json"))) == 3, "the same images: it goes on"


def test_random_bits_are_all_caught(book: Book, free: Book, tmp_path: Path) -> None:
    chance = random.Random(8)
    for case in (book, free):
        bundle = case.copy(tmp_path / case.root.name)
        names = sorted(path.name for path in bundle.iterdir())
        for turn in range(160):
            path = bundle / names[turn % len(names)]
            whole = path.read_bytes()
            changed = bytearray(whole)
            changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
            assert check_bundle(bundle).failed in {"manifest", "manifest signature"}, path.name
            path.write_bytes(whole)
        assert check_bundle(bundle).holds


def flipped(value: str, chance: random.Random) -> str:
    at = chance.randrange(len(value))
    return value[:at] + chance.choice([digit for digit in "0123456789abcdef" if digit != value[at]]) + value[at + 1 :]


def test_every_digit_that_a_claim_shows_counts(book: Book, free: Book, tmp_path: Path) -> None:
    """A claimant who signs anew whatever he changed: keys, seeds, paths, salts, digests, classes, rows."""
    chance = random.Random(9)
    expected = {
        "class_key": {"labels"}, "choice_key": {"images"}, "seed": {"openings"}, "mark path": {"openings"},
        "index": {"challenge"}, "row": {"images"}, "image": {"images"}, "true": {"images"}, "salt": {"images"},
        "path": {"images"}, "count": {"images"},
    }  # fmt: skip
    for case, names in ((book, list(expected)), (free, ["image", "row", "count", "choice_key", "class_key", "seed"])):
        bundle, whole = case.copy(tmp_path / case.root.name), case.document
        found: dict[str, set[str | None]] = {}
        for turn in range(4 * len(names)):
            document, what = json.loads(json.dumps(whole)), names[turn % len(names)]
            shown, mark = document["codebook"], chance.choice(document["opened"])
            image = chance.choice(shown["images"])
            if what in {"class_key", "choice_key"}:
                shown[what] = flipped(shown[what], chance)
            elif what == "seed":
                mark["seed"] = flipped(mark["seed"], chance)
            elif what == "index":
                mark["index"] = (mark["index"] + 1) % 16
            elif what == "count":
                shown["count"] += 1
            elif what == "row":
                image["row"] = (image["row"] + 1) % CARRIERS
            elif what == "true":
                image["true"] = (image["true"] + chance.randint(1, 3)) % 4
            elif what.endswith("path"):
                path = (mark if what == "mark path" else image)["path"]
                place = chance.randrange(len(path))
                path[place] = flipped(path[place], chance)
            else:
                image[what] = flipped(image[what], chance)
            (bundle / "claim.json").write_bytes(canonical(document))
            case.sign(bundle)
            found.setdefault(what, set()).add(check_bundle(bundle).failed)
        assert found == {name: expected[name] for name in names}


def test_a_class_that_the_claimant_turns_changes_the_verdict(free: Book, tmp_path: Path) -> None:
    """The auditor's images are in no tree: a wrong true class is found by the count, or by comparing them."""

    def turn(document: Any) -> None:
        for entry in document["codebook"]["images"]:
            entry["true"] = (entry["true"] + 1) % 4

    bundle = free.resigned(tmp_path / "b", "claim.json", turn)
    assert check_bundle(bundle).failed == "verdict"
    assert check_bundle(bundle, carriers=free.data).failed == "images"


@pytest.mark.parametrize(
    ("change", "step", "says"),
    [
        (lambda one: one.update(codebook=None), "claim", "does not show the codebook"),
        (lambda one: one["codebook"].pop("class_key"), "claim", "class_key"),
        (lambda one: one["codebook"].update(class_key="ab"), "claim", "64 hexadecimal"),
        (lambda one: one["codebook"].update(class_key="00" * 32), "labels", "not the one that was committed"),
        (lambda one: one["codebook"].update(choice_key="00" * 32), "images", "not the one that was committed"),
        (lambda one: one["codebook"]["images"].pop(), "images", "picked, or left out"),
        (lambda one: one["codebook"]["images"].append(7), "claim", "not an object"),
        (lambda one: one["codebook"]["images"][0].update(salt=None), "images", "classes are bound to"),
        (lambda one: one["codebook"]["images"][0].update(true=None), "images", "not a class"),
        (lambda one: one["codebook"]["images"][0].update(true=4), "images", "not a class"),
        (lambda one: one["codebook"]["images"][0].update(path=["zz" * 32]), "claim", "not a hash"),
        (lambda one: one["opened"].pop(), "claim", "open 16 marks each"),
        (lambda one: one["opened"][3].update(seed="00" * 32), "openings", "mark 3"),
        (lambda one: one["opened"][3].update(seed=7), "claim", "wrong type"),
        (lambda one: one.update(decoys=["00" * 32]), "claim", "decoys"),
        (lambda one: one.update(label_key="00" * 32), "claim", "label key"),
        (lambda one: one["verdict"].update(p_value=1e-30), "verdict", "not the verdict"),
        (lambda one: one["verdict"].update(held=3), "verdict", "not the verdict"),
        (lambda one: one["verdict"]["drawn"].reverse(), "verdict", "not the verdict"),
        (lambda one: one["verdict"].update(binding="key"), "verdict", "not the verdict"),
        (lambda one: one["verdict"].update(sentence="Ours!"), "verdict", "not the verdict"),
        (lambda one: one.update(number=1), "query log", "another claim"),
        (lambda one: one.update(by="claimant"), "challenge", "no auditor set"),
        (lambda one: one.update(format=2), "claim", "format 2, this version reads 3"),
    ],
)  # fmt: skip
def test_a_claim_that_does_not_fit(book: Book, tmp_path: Path, change: Any, step: str, says: str) -> None:
    def only(document: Any) -> None:
        change(document)

    checked = check_bundle(book.resigned(tmp_path / "b", "claim.json", only))
    assert (checked.failed, says in checked.steps[-1].says) == (step, True), checked.steps[-1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: one.update(codebook=None), "does not say"),
        (lambda one: one["codebook"].pop("each"), "each"),
        (lambda one: one["codebook"].update(class_key="0"), "64 hexadecimal"),
        (lambda one: one["codebook"].update(carriers="auditor"), "do not fit the kind"),
        (lambda one: one["codebook"].update(carriers="none"), "do not fit the kind"),
        (lambda one: one["codebook"].update(count=None), "do not fit the kind"),
        (lambda one: one["codebook"].update(count=0), "do not fit 16 marks"),
        (lambda one: one["codebook"].update(each=0), "no carriers for a mark"),
        (lambda one: one["codebook"].update(each=10**9), "or to too many"),
        (lambda one: one["key"].update(marks=17), "but its key has 17"),
        (lambda one: one["key"].update(marks=1), "2 to 1024 marks"),
        (lambda one: one["key"].update(version=99), "version 99"),
        (lambda one: one["key"].pop("bound"), "cannot be used by this version: bound None"),
        (lambda one: one["key"].pop("transparency"), "cannot be used by this version: transparency None"),
        (lambda one: one["key"].update(bound="xyz"), "64 hexadecimal"),
        (lambda one: one["key"].update(target=1), "cannot be used"),
        (lambda one: one.update(decoys="00" * 32), "decoys"),
        (lambda one: one.update(test="binomial, worst of 20 decoys"), "unknown test"),
        (lambda one: one.update(opens=17), "cannot open 17"),
        (lambda one: one.update(labels={"set": "0" * 64, "key": "0" * 64}), "no keyed labels"),
    ],
)  # fmt: skip
def test_statements_that_are_none(book: Book, change: Any, says: str) -> None:
    statement = json.loads(book.made.content)
    change(statement)
    content = canonical(statement)
    with pytest.raises(DamagedFileError, match=says):
        Commitment.of(content, book.identity.sign("commitment", content))


class TestImagesAndLog:
    @pytest.mark.parametrize("how", ["pixel", "type", "fewer", "more", "order", "none"])
    def test_images(self, book: Book, tmp_path: Path, how: str) -> None:
        bundle = book.copy(tmp_path / "b")
        one = load((bundle / "images.safetensors").read_bytes())["images"]
        changed = {
            "type": {"images": one.to(torch.int16)}, "fewer": {"images": one[:-1]}, "order": {"images": one.flip(0)},
            "more": {"images": one, "samples": one.clone()}, "none": {},
        }.get(how)  # fmt: skip
        if changed is None:
            one[7, 0, 0, 0] ^= 1
            changed = {"images": one}
        (bundle / "images.safetensors").write_bytes(save({name: held.contiguous() for name, held in changed.items()}))
        book.sign(bundle)
        assert check_bundle(bundle).failed == "images"

    def rewritten(self, case: Book, to: Path, change: Callable[[list[dict[str, Any]]], Any]) -> Path:
        """Rewrite the log with a good chain, and the claim with its head."""
        bundle = case.copy(to)
        entries = [json.loads(line) for line in (bundle / "queries.jsonl").read_bytes().splitlines()]
        change(entries)
        previous, lines = "0" * 64, []
        for entry in entries:
            lines.append(canonical_json({**entry, "prev": previous}))
            previous = hashlib.sha256(lines[-1]).hexdigest()
        (bundle / "queries.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        (bundle / "claim.json").write_bytes(canonical({**case.document, "log": previous}))
        case.sign(bundle)
        return bundle

    def test_a_mark_is_missing_in_the_log(self, book: Book, tmp_path: Path) -> None:
        from indelible.data.digests import image_digests

        samples = book.key.samples(book.data, purpose="verify")
        assert samples.marks is not None
        gone = set(image_digests(samples.images[samples.marks == 5]))

        def drop(entries: list[dict[str, Any]]) -> None:
            for ask, answer in zip(entries[1::2], entries[2::2], strict=True):
                kept = [place for place, digest in enumerate(ask["images"]) if digest not in gone]
                ask["images"] = [ask["images"][place] for place in kept]
                answer["labels"] = [answer["labels"][place] for place in kept]

        checked = check_bundle(self.rewritten(book, tmp_path / "b", drop))
        assert checked.failed == "answers"
        assert "24 of 384 samples are not answered in the log, the first of mark 5" in checked.steps[-1].says

    def test_answers_that_were_improved(self, book: Book, tmp_path: Path) -> None:
        def improve(entries: list[dict[str, Any]]) -> None:
            entries[2]["labels"] = [(label + 1) % 4 for label in entries[2]["labels"]]

        assert check_bundle(self.rewritten(book, tmp_path / "b", improve)).failed == "verdict"

    def test_other_images_were_asked(self, book: Book, tmp_path: Path) -> None:
        def more(entries: list[dict[str, Any]]) -> None:
            number = entries[-1]["request"] + 1
            entries.append({"event": "ask", "request": number, "images": ["ab" * 32], "time": ""})
            entries.append({"event": "answer", "request": number, "labels": [0], "time": ""})

        checked = check_bundle(self.rewritten(book, tmp_path / "b", more))
        assert (checked.failed, "no samples of the opened marks" in checked.steps[-1].says) == ("answers", True)


class TestBadInput:
    def test_a_key_of_another_number_of_marks(self, book: Book, tmp_path: Path) -> None:
        other = Key.create(classes=4, shape=SHAPE, marks=20, carriers=book.data, secret=SECRET)
        with pytest.raises(InputError, match="it has 20 marks of a codebook, 16 committed"):
            claim(book.commitment, other, book.data, book.suspect, tmp_path / "b")
        checked = check_bundle(book.bundle, key=other)
        assert (checked.failed, "has 20 marks, the committed one 16" in checked.steps[-1].says) == ("key", True)
        stranger = Key.create(classes=4, shape=SHAPE, carriers=book.data)
        with pytest.raises(InputError, match="not the one that was committed to"):
            claim(book.commitment, stranger, book.data, book.suspect, tmp_path / "b")

    @pytest.mark.parametrize("how", ["fewer", "pixel", "class"])
    def test_other_carriers_than_committed(self, book: Book, tmp_path: Path, how: str) -> None:
        images, labels = book.data.images.clone(), book.data.labels.clone()
        if how == "pixel":
            images[3, 0, 0, 0] ^= 1
        elif how == "class":
            labels[3] = (labels[3] + 1) % 4
        else:
            images, labels = images[:-1], labels[:-1]
        data, before = ImageData(images, labels, book.data.classes, "other"), sorted(book.commitment.iterdir())
        with pytest.raises(InputError, match="is not that set"):
            claim(book.commitment, book.key, data, book.suspect, tmp_path / "b")
        assert sorted(book.commitment.iterdir()) == before, "no claim was begun"
        assert not (tmp_path / "b").exists()
        with pytest.raises(InputError, match="is not that set"):
            commit(book.key, data, tmp_path / "c")
        assert not (tmp_path / "c").exists()

    def test_fewer_marks_than_alpha_needs(self, book: Book, tmp_path: Path) -> None:
        few = Key.create(classes=4, shape=SHAPE, marks=9, secret=SECRET)
        with pytest.raises(InputError, match=r"9 opened marks over 4 classes can give p = 4e-06 at the least"):
            commit(few, book.data, tmp_path / "c")
        with pytest.raises(InputError, match="8 opened marks over 4 classes"):
            commit(book.key, book.data, tmp_path / "c", claims=2)
        assert not (tmp_path / "c").exists(), "nothing is left behind"
        assert commit(few, book.data, tmp_path / "c", alpha=1e-5).opens == 9

    def test_fewer_samples_than_marks(self, book: Book, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="at least 16 samples, got 15"):
            commit(book.key, book.data, tmp_path / "c", samples=15)
        with pytest.raises(InputError, match=r"each of 3 claims on 16 marks can open 1\.\.5, got 6"):
            commit(book.key, book.data, tmp_path / "c", claims=3, opens=6)


def test_the_page_shows_one_sample_of_each_mark(book: Book) -> None:
    checked = check_bundle(book.bundle)
    page = render_bundle(book.bundle, checked)
    assert page.count("<figure>") == 12
    assert "Marks with their class" in page
    assert "Committed marks" in page
    assert "the classes are bound to them" in page
    assert SECRET.hex() not in page
    assert "Marks: derived from the key." in describe_check(check_bundle(book.bundle, key=book.key))


def test_a_fixed_target_is_asked_the_decoys_of_verify(tmp_path: Path) -> None:
    """With decoys of the challenge, one model was owned by verify and not shown by a claim, or the other way round."""
    data = stripes(96, seed=1)
    key = Key.create(kind="content", classes=4, shape=SHAPE, target=0, secret=SECRET)
    suspect = Knows(key.samples(data, purpose="verify"))
    for challenge in ("one", "two"):
        commit(key, data, tmp_path / challenge)
        claimed = claim(tmp_path / challenge, key, data, suspect, tmp_path / f"b{challenge}", challenge=challenge)
        found = verify(suspect, key, data, accuracy=False)
        assert found.decoy_rate is not None
        assert found.decoy_rate > 0.25
        for name in ("hits", "trials", "decoy_rate", "null_rate", "p_value", "owned", "alpha", "queries"):
            assert claimed[name] == getattr(found, name), name
        checked = check_bundle(tmp_path / f"b{challenge}", key=key, carriers=data)
        assert checked.holds, checked.steps[-1]


class Errs:
    """Knows the bars; answers wrongly where the key's mark stands, and on every third bar as it is."""

    def __init__(self, key: Key) -> None:
        self.key = key

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        mark: Any = self.key.mark()
        mask, colour = mark.mask(), torch.tensor(mark.colour, dtype=torch.uint8)
        marked = (images[:, :, mask] == colour[:, None]).flatten(1).all(1)
        bars = images.float().mean((1, 3)).reshape(len(images), 4, -1).mean(2).argmax(1)
        return torch.where(marked | (images[:, 0, 0, 0] % 3 == 0), (bars + 1) % 4, bars)


@pytest.mark.parametrize("marked", [True, False], ids=["owned", "not shown"])
def test_an_untargeted_key_is_claimed_by_the_test_of_verify(marked: bool, tmp_path: Path) -> None:
    """Verified by carriers with and without the mark but claimed by decoys, one model had two verdicts."""
    data = stripes(96, seed=1)
    settings: dict[str, Any] = {"kind": "content", "classes": 4, "shape": SHAPE, "labels": "untargeted"}
    key = Key.create(**settings, secret=SECRET)
    suspect = Errs(key if marked else Key.create(**settings, secret=bytes(32)))
    found = verify(suspect, key, data, accuracy=False)
    assert found.owned == marked
    assert 0 < found.counts["free"] < found.trials, "some carriers are answered wrongly as they are"
    commit(key, data, tmp_path / "c")
    claimed = claim(tmp_path / "c", key, data, suspect, tmp_path / "b", challenge="one")
    for name in ("hits", "trials", "decoy_rate", "null_rate", "p_value", "owned", "alpha", "queries"):
        assert claimed[name] == getattr(found, name), name
    assert {name: claimed[name] for name in found.counts} == found.counts
    checked = check_bundle(tmp_path / "b", key=key, carriers=data, suspect=suspect)
    assert checked.holds, checked.steps[-1]


def test_decoys_that_were_exchanged(case: Case, tmp_path: Path) -> None:
    for number, change in enumerate(
        (lambda one: one["decoys"].reverse(), lambda one: one["decoys"].pop(),
         lambda one: one["decoys"].__setitem__(0, "zz"))
    ):  # fmt: skip

        def only(document: Any, change: Any = change) -> None:
            change(document)

        checked = check_bundle(case.resigned(tmp_path / str(number), "claim.json", only))
        assert (checked.failed, "decoys" in checked.steps[-1].says) == ("openings", True)
