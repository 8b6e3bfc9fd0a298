"""The offline check: what holds, and that every change, by an outsider or a cheating claimant, is found and named."""

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.base.merkle import audit_paths
from indelible.evidence import Identity, check_bundle, claim, commit
from indelible.evidence.canonical import canonical
from indelible.evidence.sample_entries import entries_of
from indelible.keys.key import Key
from indelible.verification.suspects import ModuleSuspect
from tests.conftest import SHAPE, TinyNet
from tests.evidence.cases import Case, reader

STEPS = [
    "files", "manifest", "commitment", "manifest signature", "timestamp", "claim", "challenge", "openings", "labels",
    "images", "query log", "answers", "verdict",
]  # fmt: skip


def test_a_bundle_checks_without_any_secret(case: Case, tmp_path: Path) -> None:
    bundle = case.copy(tmp_path / "bundle")
    hidden = case.root.with_name("hidden")
    case.root.rename(hidden)  # no key, no commitment folder, no data within reach
    try:
        checked = check_bundle(bundle, challenge="dice 4 1 6")
    finally:
        hidden.rename(case.root)
    assert checked.holds, checked
    assert [step.name for step in checked.steps] == STEPS
    assert checked.claim is not None
    assert checked.claim["verdict"]["owned"]
    assert checked.claim["verdict"]["hits"] == 30
    assert any("derived from a secret" in caveat for caveat in checked.caveats)
    assert "Only the watermark links" in checked.meaning
    json.dumps(checked.to_json())


def test_nothing_in_a_bundle_gives_the_secret_or_the_rest_away(case: Case) -> None:
    content = b"".join(path.read_bytes() for path in case.bundle.iterdir())
    assert case.key.secret not in content
    assert case.key.secret.hex().encode() not in content
    claimed = json.loads((case.bundle / "claim.json").read_bytes())
    opened = {entry["index"] for entry in claimed["opened"]}
    entries = entries_of(case.key, case.data, samples=64)
    for index, document in enumerate(entries.documents):
        assert (document["salt"].encode() in content) == (index in opened)
        assert (document["image"].encode() in content) == (index in opened)


def test_random_bits_are_all_caught_and_named(case: Case, tmp_path: Path) -> None:
    """Over a thousand flips, in every file: each ends the check, at a step that has a name."""
    chance, bundle = random.Random(5), case.copy(tmp_path / "bundle")
    names = sorted(path.name for path in bundle.iterdir())
    caught = dict.fromkeys(names, 0)
    for turn in range(1100):
        path = bundle / names[turn % len(names)]
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        checked = check_bundle(bundle)
        path.write_bytes(whole)
        assert not checked.holds, path.name
        assert checked.failed in {"manifest", "manifest signature"}
        assert not checked.steps[-1].holds
        caught[path.name] += 1
    assert sum(caught.values()) == 1100
    assert min(caught.values()) >= 100
    assert check_bundle(bundle).holds


@pytest.mark.parametrize("how", ["cut", "longer", "empty", "missing", "extra", "link", "folder", "swapped"])
def test_files_that_are_not_as_they_were(case: Case, tmp_path: Path, how: str) -> None:
    bundle = case.copy(tmp_path / "bundle")
    for path in sorted(bundle.iterdir()):
        whole = path.read_bytes()
        if how == "extra":
            path = bundle / f"{path.name}.bak"  # noqa: PLW2901 - another file beside it
            path.write_bytes(whole)
        elif how in {"missing", "link", "folder"}:
            path.unlink()
            if how == "link":
                (tmp_path / "target").write_bytes(whole)
                path.symlink_to(tmp_path / "target")
            elif how == "folder":
                path.mkdir()
        else:
            other = (bundle / ("claim.json" if path.name != "claim.json" else "manifest.json")).read_bytes()
            path.write_bytes({"cut": whole[:-1], "longer": whole + b"\n", "empty": b"", "swapped": other}[how])
        checked = check_bundle(bundle)
        assert not checked.holds, (path.name, how)
        assert checked.failed in {"files", "manifest", "commitment", "manifest signature"}
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        if how != "extra":
            path.write_bytes(whole)
    assert check_bundle(bundle).holds


def _field(*place: Any) -> Callable[[Any], None]:
    """Change one value somewhere in a JSON document, to another of its kind."""

    def change(document: Any) -> None:
        *way, last = place
        for name in way:
            document = document[name]
        value = document[last]
        if isinstance(value, bool):
            document[last] = not value
        elif isinstance(value, int | float):
            document[last] = value + 1
        elif isinstance(value, str):
            document[last] = ("0" if value[:1] != "0" else "1") + value[1:]
        elif isinstance(value, list):
            document[last] = [*value, 0]
        elif value is None:
            document[last] = 0.5
        else:
            document[last] = {**value, "more": 1}

    return change


@pytest.mark.parametrize(
    ("place", "step"),
    [
        (("format",), "claim"), (("commitment",), "claim"), (("number",), "challenge"),
        (("challenge",), "challenge"), (("by",), "challenge"), (("suspect",), "query log"), (("log",), "query log"),
        (("verdict", "p_value"), "verdict"), (("verdict", "owned"), "verdict"), (("verdict", "hits"), "verdict"),
        (("verdict", "trials"), "verdict"), (("verdict", "alpha"), "verdict"), (("verdict", "test"), "verdict"),
        (("verdict", "queries"), "verdict"), (("verdict", "null_rate"), "verdict"), (("verdict", "wsr"), "verdict"),
        (("verdict", "decoy_rate"), "verdict"), (("verdict", "sentence"), "verdict"), (("verdict",), "verdict"),
        (("opened",), "claim"), (("opened", 3, "index"), "challenge"), (("opened", 3, "salt"), "openings"),
        (("opened", 3, "image"), "openings"), (("opened", 3, "label"), "openings"), (("opened", 3, "true"), "openings"),
        (("opened", 3, "carrier"), "openings"), (("opened", 3, "path"), "claim"),
        (("label_key",), "claim"), (("opened", 3, "set_path"), "claim"),
        (("opened", 3, "path", 0), "openings"), (("opened", 3, "path", -1), "openings"),
    ],
    ids=lambda value: "/".join(map(str, value)) if isinstance(value, tuple) else value,
)  # fmt: skip
def test_a_claimant_who_changes_his_claim_and_signs_it_anew(
    case: Case, tmp_path: Path, place: tuple[Any, ...], step: str
) -> None:
    checked = check_bundle(case.resigned(tmp_path / "b", "claim.json", _field(*place)))
    assert checked.failed == step, checked.steps[-1]


@pytest.mark.parametrize(
    "name",
    ["format", "root", "samples", "claims", "opens", "purpose", "key", "key_digest", "test", "alpha", "model", "owner",
     "public_key", "created", "labels"],
)  # fmt: skip
def test_a_statement_that_is_changed_after_it_was_signed(case: Case, tmp_path: Path, name: str) -> None:
    checked = check_bundle(case.resigned(tmp_path / "b", "commitment.json", _field(name)))
    assert checked.failed == "commitment"


def test_a_statement_that_is_changed_and_signed_anew_has_lost_its_date(case: Case, tmp_path: Path) -> None:
    if case.authority is None:
        pytest.skip("needs openssl")
    bundle = case.resigned(tmp_path / "b", "commitment.json", _field("owner"))
    (bundle / "commitment.sig").write_bytes(case.identity.sign("commitment", (bundle / "commitment.json").read_bytes()))
    case.sign(bundle)
    assert check_bundle(bundle).failed == "timestamp"


def test_reordered_leaves(case: Case, tmp_path: Path) -> None:
    """Two openings swap their places: indices as the challenge wants them, contents exchanged."""

    def swap(document: Any) -> None:
        one, two = document["opened"][:2]
        one["index"], two["index"] = two["index"], one["index"]
        document["opened"][:2] = [two, one]

    bundle = case.resigned(tmp_path / "b", "claim.json", swap)
    tensors = load((bundle / "images.safetensors").read_bytes())
    order = [1, 0, *range(2, 30)]
    (bundle / "images.safetensors").write_bytes(save({name: value[order] for name, value in tensors.items()}))
    case.sign(bundle)
    checked = check_bundle(bundle)
    assert (checked.failed, "committed root" in checked.steps[-1].says) == ("openings", True)


def test_a_replayed_opening(case: Case, tmp_path: Path) -> None:
    """What one claim opened does not serve another: neither under another challenge, nor as a second claim."""

    def another(document: Any) -> None:
        document["challenge"] = "dice 6 6 6"

    # Now and then two challenges open the same samples; then the query log, kept for the first one, gives it away.
    assert check_bundle(case.resigned(tmp_path / "a", "claim.json", another)).failed in {"challenge", "query log"}

    def again(document: Any) -> None:
        document["number"] = 1

    assert check_bundle(case.resigned(tmp_path / "b", "claim.json", again)).failed == "challenge"
    assert check_bundle(case.bundle, challenge="dice 6 6 6").failed == "challenge"


def test_an_opening_of_somebody_elses_commitment(case: Case, tmp_path: Path) -> None:
    """A thief with the owner's published bundle commits to it himself: the paths lead to another root."""
    thief = Identity.create()
    commit(Key.create(kind="content", classes=4, shape=SHAPE, target=0), case.data, tmp_path / "own", identity=thief)
    bundle = case.copy(tmp_path / "bundle")
    for name in ("commitment.json", "commitment.sig"):
        shutil.copy(tmp_path / "own" / name, bundle / name)
    checked = check_bundle(bundle)
    assert checked.failed == "manifest"
    case.sign(bundle)
    assert check_bundle(bundle).failed == "manifest signature"


class TestImagesAndLog:
    def changed_images(self, case: Case, to: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
        bundle = case.copy(to)
        tensors = load((bundle / "images.safetensors").read_bytes())
        tensors = change(tensors) or tensors
        (bundle / "images.safetensors").write_bytes(save({name: one.contiguous() for name, one in tensors.items()}))
        case.sign(bundle)
        return bundle

    @pytest.mark.parametrize("name", ["samples", "carriers"])
    @pytest.mark.parametrize("how", ["pixel", "type", "fewer", "more", "order"])
    def test_images(self, case: Case, tmp_path: Path, name: str, how: str) -> None:
        def change(tensors: dict[str, torch.Tensor]) -> None:
            one = tensors[name]
            if how == "pixel":
                one[7, 0, 0, 0] ^= 1
            elif how == "type":
                tensors[name] = one.to(torch.int16)
            elif how == "fewer":
                tensors[name] = one[:-1]
            elif how == "more":
                tensors["more"] = one.clone()
            else:
                tensors[name] = one.flip(0)

        assert check_bundle(self.changed_images(case, tmp_path / "b", change)).failed == "images"

    def rewritten(self, case: Case, to: Path, change: Callable[[list[dict[str, Any]]], Any], *, head: bool) -> Path:
        """Rewrite the log with a good chain: what a claimant can do who holds everything."""
        import hashlib

        bundle = case.copy(to)
        entries = [json.loads(line) for line in (bundle / "queries.jsonl").read_bytes().splitlines()]
        change(entries)
        previous, lines = "0" * 64, []
        for entry in entries:
            lines.append(canonical_json({**entry, "prev": previous}))
            previous = hashlib.sha256(lines[-1]).hexdigest()
        (bundle / "queries.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        claimed = json.loads((bundle / "claim.json").read_bytes())
        if head:
            claimed["log"] = previous
        (bundle / "claim.json").write_bytes(canonical(claimed))
        case.sign(bundle)
        return bundle

    def test_answers_that_were_improved(self, case: Case, tmp_path: Path) -> None:
        def improve(entries: list[dict[str, Any]]) -> None:
            entries[2]["labels"] = [(label + 1) % 4 for label in entries[2]["labels"]]

        assert check_bundle(self.rewritten(case, tmp_path / "a", improve, head=False)).failed == "query log"
        checked = check_bundle(self.rewritten(case, tmp_path / "b", improve, head=True))
        assert checked.failed == "verdict", "a consistent lie in the log changes the verdict that it gives"

    @pytest.mark.parametrize(
        ("change", "step", "says"),
        [
            (lambda entries: entries[0].update(about={"commitment": "other"}), "query log", "another claim"),
            (lambda entries: entries[0].update(suspect={"kind": "other"}), "query log", "another suspect"),
            (lambda entries: entries[0].update(classes=5), "query log", "classes"),
            (lambda entries: entries[2]["labels"].pop(), "query log", "one label"),
            (lambda entries: entries[2]["labels"].__setitem__(0, 4), "query log", "one label"),
            (lambda entries: entries[2]["labels"].__setitem__(0, True), "query log", "one label"),
            (lambda entries: entries[1]["images"].__setitem__(0, "0" * 64), "answers", "not answered"),
            (lambda entries: entries.pop(), "answers", "not answered"),
            (lambda entries: entries.pop(2), "answers", "not answered"),
            (lambda entries: entries.insert(3, entries[2]), "query log", "without its question"),
            (lambda entries: entries.insert(2, {"event": "note"}), "query log", "unknown event"),
            (lambda entries: entries.extend([
                {"event": "ask", "request": entries[-1]["request"] + 1, "images": ["ab" * 32], "time": ""},
                {"event": "answer", "request": entries[-1]["request"] + 1, "labels": [0], "time": ""},
            ]), "answers", "neither"),
        ],
    )  # fmt: skip
    def test_a_log_that_does_not_fit(self, case: Case, tmp_path: Path, change: Any, step: str, says: str) -> None:
        checked = check_bundle(self.rewritten(case, tmp_path / "b", change, head=True))
        assert checked.failed == step, checked.steps[-1]
        assert says in checked.steps[-1].says


def test_with_the_key_and_the_suspect_at_hand(case: Case) -> None:
    checked = check_bundle(case.bundle, key=case.key, carriers=case.data, suspect=reader(case.key))
    assert checked.holds
    assert [step.name for step in checked.steps][-2:] == ["key", "suspect"]
    assert checked.derived
    assert not check_bundle(case.bundle).derived
    other = Key.create(kind="content", classes=4, shape=SHAPE, target=0)
    assert check_bundle(case.bundle, key=other, carriers=case.data).failed == "key"
    assert check_bundle(case.bundle, suspect=ModuleSuspect(TinyNet().eval())).failed == "suspect"
    assert check_bundle(case.bundle, public_key="00" * 32).failed == "commitment"
    assert check_bundle(case.bundle, public_key=case.identity.public.upper()).holds


def test_later_claims_open_other_samples_until_none_are_left(case: Case, tmp_path: Path) -> None:
    own = tmp_path / "commitment"
    shutil.copytree(case.commitment, own)
    claim(own, case.key, case.data, reader(case.key), tmp_path / "second")
    checked = check_bundle(tmp_path / "second")
    assert checked.holds
    assert checked.claim is not None
    assert checked.claim["by"] == "claimant"
    assert any("You set no challenge" in caveat for caveat in checked.caveats)
    first = json.loads((case.bundle / "claim.json").read_bytes())
    opened = [{entry["index"] for entry in one["opened"]} for one in (first, checked.claim)]
    assert not opened[0] & opened[1]
    with pytest.raises(InputError, match="allows 2 claims"):
        claim(own, case.key, case.data, reader(case.key), tmp_path / "third")


def test_a_model_without_the_mark_is_not_shown(case: Case, tmp_path: Path) -> None:
    own = tmp_path / "commitment"
    shutil.copytree(case.commitment, own)
    torch.manual_seed(0)
    verdict = claim(own, case.key, case.data, ModuleSuspect(TinyNet().eval()), tmp_path / "b")
    assert not verdict["owned"]
    assert "Not shown" in verdict["sentence"]
    assert check_bundle(tmp_path / "b").holds, "an honest record of a negative verdict"


def test_what_a_claim_refuses(case: Case, tmp_path: Path) -> None:
    suspect = reader(case.key)
    other = Key.create(kind="content", classes=4, shape=SHAPE, target=0)
    with pytest.raises(InputError, match="key is not the one"):
        claim(case.commitment, other, case.data, suspect, tmp_path / "b")
    with pytest.raises(InputError, match="committed samples"):
        claim(case.commitment, case.key, case.data.subset(torch.arange(90)), suspect, tmp_path / "b")
    with pytest.raises(InputError, match="signing key"):
        claim(case.commitment, case.key, case.data, suspect, tmp_path / "b", identity=Identity.create())
    with pytest.raises(InputError, match="holds a commitment already"):
        commit(case.key, case.data, case.commitment)


def test_samples_cannot_be_left_out_by_calling_them_spent(case: Case, tmp_path: Path) -> None:
    """Whoever could exclude samples, or open fewer, would keep those that hit by accident: both are refused."""

    def fewer(document: Any) -> None:
        document["opened"].pop()

    def other_part(document: Any) -> None:
        document["number"] = 1

    def no_part(document: Any) -> None:
        document["number"] = 2

    assert check_bundle(case.resigned(tmp_path / "a", "claim.json", fewer)).failed == "claim"
    assert check_bundle(case.resigned(tmp_path / "b", "claim.json", other_part)).failed == "challenge"
    assert check_bundle(case.resigned(tmp_path / "c", "claim.json", no_part)).failed == "claim"


def test_a_path_of_the_owner_is_the_slow_one(case: Case) -> None:
    entries = entries_of(case.key, case.data, samples=64)
    claimed = json.loads((case.bundle / "claim.json").read_bytes())
    for entry in claimed["opened"][:3]:
        assert [bytes.fromhex(one) for one in entry["path"]] == audit_paths(entries.leaves, [entry["index"]])[0]


def test_a_missing_package_is_refused_before_a_signing_key_is_written(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rfc8785", None)
    with pytest.raises(InputError, match=r"pip install 'indelible\[evidence\]'"):
        commit(Key.create(classes=4, shape=SHAPE), case.data, tmp_path / "commitment")
    assert not (tmp_path / "commitment").exists()
