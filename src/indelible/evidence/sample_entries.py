"""Samples of a key with one mark in evidence: what is committed, what a claim shows, and what an auditor checks.

Each sample becomes a leaf, salted so that nobody can guess it:

    entry  = canonical JSON of {salt, image (digest), label, carrier (digest), true (class of the carrier)}
    root   = Merkle root over all entries (RFC 6962)

The carrier is in the entry because decoys are drawn on it: whoever claims cannot choose other carriers afterwards. The
decoys are the key's own, HKDF(secret, "decoy/i"), which :func:`indelible.verify` asks too. The hash of their secrets is
committed to, so that nobody can look for harmless ones.

With keyed labels the statement also holds R, the root of the set that the labels were drawn for, and the SHA-256 of the
label key (:mod:`indelible.keys.labels`). A claim shows the label key, and for every opened sample its path to R.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from indelible.base.checks import is_hash
from indelible.base.errors import InputError
from indelible.base.merkle import leaf_hash, tree_root
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import ImageData
from indelible.evidence.canonical import Hash, canonical, fields_of, require
from indelible.evidence.decision import KEYED, PAIRED, WITH_DECOYS, test_of
from indelible.evidence.opening import Questions, check_pictures, hex_paths, leads_to, settings_key
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.labels import drawn_labels, label_key, sample_salts, set_leaf, set_leaves
from indelible.verification.suspect_queries import DECOY_SAMPLES, DECOYS

if TYPE_CHECKING:
    from indelible.evidence.commitment import Commitment

_ENTRY = {
    "index": int, "salt": Hash, "image": Hash, "label": int, "carrier": Hash, "true": int, "path": list[Hash],
    "set_path": list[Hash],
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """All samples of a commitment, as only the owner has them, with their carriers without a mark.

    ``documents`` are the entries as JSON values, ``leaves`` their hashes; ``set_leaves`` those in the set that keyed
    labels were drawn for, else None.
    """

    samples: WatermarkSamples
    carriers: ImageData
    documents: Sequence[Mapping[str, Any]]
    leaves: Sequence[bytes]
    set_leaves: Sequence[bytes] | None


def entries_of(key: Key, carriers: Any, *, samples: int | None) -> Entries:
    """Return the samples of a key on ``carriers`` as the entries of a commitment."""
    data, keyed = as_data(carriers, classes=key.classes), key.labels == "keyed"
    drawn = key.samples(data, purpose="embed" if keyed else "verify", count=samples)
    plain = data.gather(drawn.carriers)
    plain = ImageData(plain.images.cpu(), plain.labels.cpu(), plain.classes, plain.name)
    names = image_digests(drawn.images)
    documents = [
        {"salt": salt.hex(), "image": image, "label": label, "carrier": carrier, "true": true}
        for salt, image, label, carrier, true in zip(
            sample_salts(key.secret, len(drawn)), names, drawn.labels.tolist(), image_digests(plain.images),
            plain.labels.tolist(), strict=True,
        )
    ]  # fmt: skip
    return Entries(
        samples=drawn, carriers=plain, documents=documents,
        leaves=[leaf_hash(canonical(document)) for document in documents],
        set_leaves=set_leaves(key.secret, names, drawn.true) if keyed else None,
    )  # fmt: skip


def statement(key: Key, carriers: Any, samples: int | None) -> tuple[Sequence[bytes], dict[str, Any]]:
    """Return the leaves of a commitment, and what it says of them: labels that are drawn, and decoys, by their hashes.

    Of keyed labels: the set that they were drawn for, and the label key.
    """
    entries, drawn = entries_of(key, carriers, samples=samples), None
    if entries.set_leaves is not None:
        shown = hashlib.sha256(label_key(key.secret)).hexdigest()
        drawn = {"set": tree_root(entries.set_leaves).hex(), "key": shown}
    return entries.leaves, {"labels": drawn, "decoys": decoys_digest(decoy_secrets(key, test_of(key.public())))}


def check_statement(found: Mapping[str, Any], name: str) -> None:
    """Refuse a statement whose labels are not those of its key's settings."""
    labels, own = found["labels"], found["key"].get("labels", "fixed")
    purpose = "embed" if own == "keyed" else "verify"
    require(found["purpose"] == purpose, f"{name}: samples of a {own!s:.20} key have another purpose.")
    if own != "keyed":
        require(labels is None, f"{name} holds labels that were drawn, but its key has no keyed labels.")
        return
    hashes = f"{name}: keyed labels take two hashes, of their set and of the label key; the object"
    fields_of(labels or {}, {"set": Hash, "key": Hash}, hashes)
    whole = found["samples"] == found["key"]["count"]
    require(whole, f"{name} commits to a part of a keyed set only: labels belong to the whole.")


def decoy_secrets(key: Key, test: str) -> list[bytes] | None:
    """Return the secrets of the key's decoys, which tell nothing of its own; None for a test without decoys."""
    return [key.decoy(number).secret for number in range(DECOYS)] if test in WITH_DECOYS else None


def decoys_digest(secrets: Sequence[bytes] | None) -> str | None:
    """Return the hash by which a commitment fixes the decoys."""
    return None if secrets is None else hashlib.sha256(b"".join(secrets)).hexdigest()


def material(stated: "Commitment", key: Key, carriers: Any) -> tuple[Entries, None]:
    """Return what a claim opens; refuse what does not give the committed samples. Nobody else brings images."""
    entries = entries_of(key, carriers, samples=stated.samples)
    if tree_root(entries.leaves).hex() != stated.root:
        raise InputError("key and carriers do not give the committed samples. Give the data committed with.")
    return entries, None


def opened(
    stated: "Commitment", key: Key, entries: Entries, numbers: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what a claim shows of the samples ``numbers``, and the images of the bundle."""
    rows, secrets = torch.tensor(numbers, dtype=torch.int64), decoy_secrets(key, stated.test)
    paths, in_set = hex_paths(entries.leaves, numbers), hex_paths(entries.set_leaves or [], numbers)
    parts = {
        "opened": [
            {"index": index, **entries.documents[index], "path": path, "set_path": set_path}
            for index, path, set_path in zip(numbers, paths, in_set, strict=True)
        ],
        "label_key": None if entries.set_leaves is None else label_key(key.secret).hex(),
        "decoys": None if secrets is None else [one.hex() for one in secrets],
    }
    return parts, {"samples": entries.samples.images[rows], "carriers": entries.carriers.images[rows]}


def check_form(claim: Mapping[str, Any]) -> None:
    """Refuse opened samples that are not of the known form."""
    require(claim["codebook"] is None, "the claim shows a codebook, but the committed key has none")
    for entry in claim["opened"]:
        fields_of(entry, _ENTRY, "an opened sample")


def check_openings(stated: "Commitment", claim: Mapping[str, Any]) -> str:
    """Refuse decoys, or an opened sample, that are not those committed to; say what was found."""
    shown, opened = claim["decoys"], claim["opened"]
    if shown is not None:
        whole = len(shown) == DECOYS and all(map(is_hash, shown))
        require(whole, f"the claim does not show {DECOYS} secrets of decoys, 64 hexadecimal digits each")
        digest = decoys_digest([bytes.fromhex(one) for one in shown])
        require(digest == stated.decoys, "the decoys are not those that were committed to")
    for entry in opened:
        leaf = leaf_hash(canonical({name: entry[name] for name in ("salt", "image", "label", "carrier", "true")}))
        found = leads_to(stated.root, leaf, entry["index"], stated.samples, entry["path"])
        require(found, f"sample {entry['index']} does not lead to the committed root")
    return f"{len(opened)} of {stated.samples} lead to the committed root"


def check_labels(stated: "Commitment", claim: Mapping[str, Any]) -> str:
    """Compare the labels of the opened samples with those that the committed key gives them; say what was found."""
    opened, classes, target = claim["opened"], stated.key["classes"], stated.key["target"]
    for entry in opened:
        known = all(0 <= entry[name] < classes for name in ("label", "true"))
        require(known, f"the label or the true class of sample {entry['index']} is not a class")
    if stated.test == KEYED:
        wanted, what = _drawn_labels(stated, claim), "but the label key draws"
        says = f"{len(opened)} labels drawn again by the committed label key"
    else:
        shown = claim["label_key"] is not None or any(entry["set_path"] for entry in opened)
        require(not shown, "the claim shows a label key, but the committed key has no keyed labels")
        wanted, what, says = [target] * len(opened), "not the target", f"all are the target, class {target}"
    if stated.test == PAIRED:
        wanted, what = [entry["true"] for entry in opened], "not its carrier's class"
        says = "all are the carriers' own classes, which a hit is not"
    for entry, label in zip(opened, wanted, strict=True):
        number, given = entry["index"], entry["label"]
        require(given == label, f"the label of sample {number} is {given}, {what} {label}")
        require(entry["true"] != target, f"the carrier of sample {number} is of the target class already")
    return says


def _drawn_labels(stated: "Commitment", claim: Mapping[str, Any]) -> list[int]:
    """Return the labels that the committed label key draws for the opened samples of the committed set."""
    shown, committed, opened = claim["label_key"], stated.labels or {}, claim["opened"]
    require(is_hash(shown), "the claim does not show the label key: 64 hexadecimal digits")
    key = bytes.fromhex(shown)
    same = hashlib.sha256(key).hexdigest() == committed["key"]
    require(same, "the label key is not the one that was committed to")
    with_truth = stated.key["kind"] != "unrelated"
    for entry in opened:
        leaf = set_leaf(bytes.fromhex(entry["salt"]), entry["image"], entry["true"] if with_truth else None)
        found = leads_to(committed["set"], leaf, entry["index"], stated.samples, entry["set_path"])
        require(found, f"sample {entry['index']} does not belong to the set that labels were drawn for")
    rows = torch.tensor([entry["index"] for entry in opened])
    true = torch.tensor([entry["true"] for entry in opened]) if with_truth else None
    root, classes = bytes.fromhex(committed["set"]), stated.key["classes"]
    labels: list[int] = drawn_labels(key, root, rows, true, classes=classes, count=stated.samples).tolist()
    return labels


def check_images(
    stated: "Commitment", claim: Mapping[str, Any], tensors: Mapping[str, Tensor], _given: Any = None
) -> Questions:
    """Compare samples and carriers with the committed digests; return what had to be asked."""
    opened, shape = claim["opened"], stated.key["shape"]
    require(tensors.keys() == {"samples", "carriers"}, "the images hold other tensors than samples and carriers")
    for name, digest in (("samples", "image"), ("carriers", "carrier")):
        check_pictures(tensors[name], [entry[digest] for entry in opened], shape, name)
    true, labels = (torch.tensor([entry[name] for entry in opened]) for name in ("true", "label"))
    carriers = ImageData(tensors["carriers"], true, tuple(map(str, range(stated.key["classes"]))), "carriers")
    keys = [settings_key(stated.key, bytes.fromhex(one)) for one in claim["decoys"] or ()]
    target, plain = stated.key["target"], None
    if stated.test == PAIRED:  # decoys on all carriers, in their order, each to compare with the one without a mark
        rows, plain = torch.arange(len(carriers)), carriers.images
        decoys = [WatermarkSamples(one.mark().apply(plain), true, rows, true, True) for one in keys]
    else:
        room = len(carriers) if target is None else int((true != target).sum())
        decoys = [one.samples(carriers, purpose="verify", count=min(DECOY_SAMPLES, room)) for one in keys]
    return Questions(samples=tensors["samples"], labels=labels, true=true, decoys=decoys, plain=plain)


def check_key(stated: "Commitment", key: Key, carriers: Any) -> str:
    """Derive all committed samples from the key that is shown; say what was found."""
    same = decoys_digest(decoy_secrets(key, stated.test)) == stated.decoys
    require(same, "the decoys are not those of the key")
    root = tree_root(entries_of(key, carriers, samples=stated.samples).leaves).hex()
    require(root == stated.root, "the key does not give the committed samples on these carriers")
    return "all committed samples are derived from the key"
