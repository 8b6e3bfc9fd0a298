"""Keyed labels in a bundle: drawn again without the secret; every way to choose them is found and named."""

import dataclasses
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.merkle import leaf_hash
from indelible.cli.terminal import describe_check
from indelible.data.digests import image_digests
from indelible.evidence import Commitment, check_bundle, claim, commit
from indelible.evidence.canonical import canonical
from indelible.evidence.sample_entries import Entries, entries_of
from indelible.keys.key import Key
from indelible.keys.labels import label_key, set_leaves
from tests.conftest import SECRET, SHAPE
from tests.evidence.cases import Case, Memory


def test_labels_are_drawn_again_without_the_secret(keyed_case: Case, tmp_path: Path) -> None:
    bundle = keyed_case.copy(tmp_path / "bundle")
    hidden = keyed_case.root.with_name("hidden-keyed")
    keyed_case.root.rename(hidden)
    try:
        checked = check_bundle(bundle, challenge="dice 4 1 6")
    finally:
        hidden.rename(keyed_case.root)
    assert checked.holds, checked.steps[-1]
    assert checked.claim is not None
    assert (checked.claim["verdict"]["hits"], checked.claim["verdict"]["queries"]) == (30, 30)
    assert checked.claim["verdict"]["p_value"] == pytest.approx((1 / 3) ** 30)
    assert (checked.drawn, checked.derived) == (True, False)
    (step,) = [step for step in checked.steps if step.name == "labels"]
    assert "30 labels drawn again" in step.says
    assert any("tried N label keys" in caveat for caveat in checked.caveats)
    assert "Samples: their labels were drawn, not chosen." in describe_check(checked).splitlines()


def test_neither_the_secret_nor_what_is_not_opened_is_shown(keyed_case: Case) -> None:
    content = b"".join(path.read_bytes() for path in keyed_case.bundle.iterdir())
    assert keyed_case.key.secret not in content
    assert keyed_case.key.secret.hex().encode() not in content
    statement = keyed_case.made.content
    assert label_key(SECRET).hex().encode() in content
    assert label_key(SECRET).hex().encode() not in statement, "before the claim, only its hash is known"
    opened = {entry["index"] for entry in json.loads((keyed_case.bundle / "claim.json").read_bytes())["opened"]}
    for index, document in enumerate(entries_of(keyed_case.key, keyed_case.data, samples=None).documents):
        assert (document["salt"].encode() in content) == (index in opened)
        assert (document["image"].encode() in content) == (index in opened)


def test_random_bits_are_all_caught(keyed_case: Case, tmp_path: Path) -> None:
    chance, bundle = random.Random(6), keyed_case.copy(tmp_path / "bundle")
    names = sorted(path.name for path in bundle.iterdir())
    for turn in range(300):
        path = bundle / names[turn % len(names)]
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        assert check_bundle(bundle).failed in {"manifest", "manifest signature"}, path.name
        path.write_bytes(whole)
    assert check_bundle(bundle).holds


def _flipped(value: str, chance: random.Random) -> str:
    at = chance.randrange(len(value))
    return value[:at] + chance.choice([digit for digit in "0123456789abcdef" if digit != value[at]]) + value[at + 1 :]


def test_every_digit_of_the_new_fields_counts(keyed_case: Case, tmp_path: Path) -> None:
    """A claimant who signs anew whatever he changed: any digit of the label key, of a path, of a salt, of a class."""
    chance, bundle = random.Random(7), keyed_case.copy(tmp_path / "bundle")
    whole = json.loads((bundle / "claim.json").read_bytes())
    found: dict[str, set[str | None]] = {}
    for turn in range(120):
        document = json.loads(json.dumps(whole))
        entry = chance.choice(document["opened"])
        what = ("label_key", "set_path", "salt", "label", "true", "image")[turn % 6]
        if what == "label_key":
            document["label_key"] = _flipped(document["label_key"], chance)
        elif what == "set_path":
            place = chance.randrange(len(entry["set_path"]))
            entry["set_path"][place] = _flipped(entry["set_path"][place], chance)
        elif what in {"label", "true"}:
            entry[what] = (entry[what] + chance.randint(1, 3)) % 4
        else:
            entry[what] = _flipped(entry[what], chance)
        (bundle / "claim.json").write_bytes(canonical(document))
        keyed_case.sign(bundle)
        found.setdefault(what, set()).add(check_bundle(bundle).failed)
    assert found == {
        "label_key": {"labels"}, "set_path": {"labels"}, "salt": {"openings"}, "label": {"openings"},
        "true": {"openings"}, "image": {"openings"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "step", "says"),
    [
        (lambda claim: claim.update(label_key=None), "labels", "does not show the label key"),
        (lambda claim: claim.update(label_key="ab"), "labels", "does not show the label key"),
        (lambda claim: claim.update(label_key=claim["label_key"].upper()), "labels", "does not show"),
        (lambda claim: claim.update(label_key="00" * 32), "labels", "not the one that was committed"),
        (lambda claim: claim["opened"][2]["set_path"].pop(), "labels", "does not belong to the set"),
        (lambda claim: claim["opened"][2]["set_path"].append("00" * 32), "labels", "does not belong to the set"),
        (lambda claim: claim["opened"][2]["set_path"].__setitem__(0, "zz" * 32), "claim", "not a hash"),
        (lambda claim: claim["opened"][2]["set_path"].__setitem__(0, 7), "claim", "not a hash"),
        (lambda claim: claim["opened"][2].pop("set_path"), "claim", "set_path"),
        (lambda claim: claim.pop("label_key"), "claim", "label_key"),
        (lambda claim: claim.update(format=1), "claim", "format 1, this version reads 3"),
    ],
)  # fmt: skip
def test_a_claim_that_does_not_fit(keyed_case: Case, tmp_path: Path, change: Any, step: str, says: str) -> None:
    def only(document: Any) -> None:
        change(document)

    checked = check_bundle(keyed_case.resigned(tmp_path / "b", "claim.json", only))
    assert (checked.failed, says in checked.steps[-1].says) == (step, True), checked.steps[-1]


def resigned_statement(case: Case, change: Callable[[Any], None]) -> tuple[bytes, bytes]:
    statement = json.loads(case.made.content)
    change(statement)
    content = canonical(statement)
    return content, case.identity.sign("commitment", content)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda one: one.update(labels=None), "two hashes"),
        (lambda one: one["labels"].pop("set"), "two hashes"),
        (lambda one: one["labels"].update(more="00" * 32), "two hashes"),
        (lambda one: one["labels"].update(key=1), "two hashes"),
        (lambda one: one["labels"].update(set="0"), "two hashes"),
        (lambda one: one["key"].update(count=61), "a part of a keyed set"),
        (lambda one: one["key"].update(target=False), "target must be a whole number, got False"),
        (lambda one: one["key"].pop("size"), "cannot be used by this version: size None"),
        (lambda one: one["key"].update(more=None), "cannot be used by this version: more None"),
        (lambda one: one["key"].update(version=1), "version 1"),
        (lambda one: one["key"].update(classes=1 << 30), "1073741824 classes, which are too many"),
        (lambda one: one.update(purpose="verify"), "another purpose"),
        (lambda one: one.update(format=1), "format 1, this version reads 3"),
        (lambda one: one.update(samples=10**12), "no samples or too many"),
    ],
)  # fmt: skip
def test_statements_that_are_none(keyed_case: Case, change: Any, says: str) -> None:
    with pytest.raises(DamagedFileError, match=says):
        Commitment.of(*resigned_statement(keyed_case, lambda one: change(one) and None))


def test_a_fixed_target_takes_no_label_key(case: Case) -> None:
    with pytest.raises(DamagedFileError, match="no keyed labels"):
        Commitment.of(*resigned_statement(case, lambda one: one.update(labels={"set": "0" * 64, "key": "0" * 64})))


class TestForgers:
    """Whoever holds all keys and signs everything anew, before any date: the labels give him away."""

    def bundle(
        self, monkeypatch: pytest.MonkeyPatch, case: Case, to: Path, forge: Callable[[Entries], Entries]
    ) -> Path:
        """Commit and claim with forged entries."""

        def forged(*args: Any, **options: Any) -> Entries:
            return forge(entries_of(*args, **options))

        monkeypatch.setattr("indelible.evidence.sample_entries.entries_of", forged)
        commit(case.key, case.data, to / "c", claims=2)
        samples = forged(case.key, case.data, samples=None).samples
        every = Memory(samples)

        class Obliging:
            def predict(self, images: torch.Tensor) -> torch.Tensor:
                known = [every.known.get(image.numpy().tobytes(), torch.tensor(1)) for image in images]
                return torch.stack(known)

        claim(to / "c", case.key, case.data, Obliging(), to / "b")
        return to / "b"

    def relabelled(self, entries: Entries, labels: torch.Tensor) -> Entries:
        documents = [{**one, "label": label} for one, label in zip(entries.documents, labels.tolist(), strict=True)]
        return dataclasses.replace(
            entries, samples=dataclasses.replace(entries.samples, labels=labels), documents=documents,
            leaves=[leaf_hash(canonical(one)) for one in documents],
        )  # fmt: skip

    def test_labels_of_his_choice(self, keyed_case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Adversarial images with the classes that they were made for."""

        def forge(entries: Entries) -> Entries:
            assert entries.samples.true is not None
            return self.relabelled(entries, (entries.samples.true + 1) % 4)

        checked = check_bundle(self.bundle(monkeypatch, keyed_case, tmp_path, forge))
        assert checked.failed == "labels"
        assert "but the label key draws" in checked.steps[-1].says

    def test_images_made_for_labels_that_were_drawn_before(
        self, keyed_case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A set is committed to, its labels are known, and then images are made that others answer so."""

        def forge(entries: Entries) -> Entries:
            images = entries.samples.images.flip(3)
            names = image_digests(images)
            documents = [{**one, "image": name} for one, name in zip(entries.documents, names, strict=True)]
            return dataclasses.replace(
                entries, samples=dataclasses.replace(entries.samples, images=images), documents=documents,
                leaves=[leaf_hash(canonical(one)) for one in documents],
            )  # fmt: skip

        checked = check_bundle(self.bundle(monkeypatch, keyed_case, tmp_path, forge))
        assert checked.failed == "labels"
        assert "does not belong to the set" in checked.steps[-1].says

    def test_a_target_that_is_not_the_keys(self, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def forge(entries: Entries) -> Entries:
            return self.relabelled(entries, torch.full_like(entries.samples.labels, 2))

        checked = check_bundle(self.bundle(monkeypatch, case, tmp_path, forge))
        assert checked.failed == "labels"
        assert "is 2, not the target 0" in checked.steps[-1].says

    def test_a_label_key_that_was_sought_afterwards(self, keyed_case: Case, tmp_path: Path) -> None:
        """Whoever may draw again when the suspect's answers are known needs few tries; the hash was committed to."""
        other = hashlib.sha256(b"another").hexdigest()

        def exchange(document: Any) -> None:
            document["label_key"] = other

        checked = check_bundle(keyed_case.resigned(tmp_path / "b", "claim.json", exchange))
        assert checked.failed == "labels"


@pytest.mark.parametrize("kind", ["noise", "unrelated"])
def test_other_kinds_and_a_second_claim(tmp_path: Path, kind: str) -> None:
    made = Case(tmp_path, stamped=False, labels="keyed", kind=kind)
    assert made.verdict["owned"]
    assert made.verdict["null_rate"] == pytest.approx(1 / 4 if kind == "unrelated" else 1 / 3)
    checked = check_bundle(made.bundle, key=made.key, carriers=made.data)
    assert checked.holds, checked.steps[-1]
    assert (checked.drawn, checked.derived) == (True, True)
    claim(made.commitment, made.key, made.data, made.suspect, tmp_path / "second")
    second = check_bundle(tmp_path / "second")
    assert second.holds
    assert second.drawn


def test_what_a_commitment_refuses(keyed_case: Case, tmp_path: Path) -> None:
    assert json.loads(keyed_case.made.content)["purpose"] == "embed", "a model has learnt those samples by heart"
    with pytest.raises(InputError, match="whole set of 60"):
        commit(keyed_case.key, keyed_case.data, tmp_path / "c", samples=40)
    another = Key.create(kind="content", classes=4, shape=SHAPE, labels="keyed", count=60)
    checked = check_bundle(keyed_case.bundle, key=another, carriers=keyed_case.data)
    assert checked.failed == "key"


def test_the_leaves_of_a_set_are_the_owners(keyed_case: Case) -> None:
    entries = entries_of(keyed_case.key, keyed_case.data, samples=None)
    samples = keyed_case.key.samples(keyed_case.data, purpose="embed")
    assert entries.set_leaves == set_leaves(SECRET, image_digests(samples.images), samples.true)
