"""That nobody chose the labels: what an auditor computes again, without the secret.

A claimant who may choose labels gets a verdict on everybody's models: adversarial images are answered with the class
they were made for. With keyed labels the statement holds R, the root of the set, and the SHA-256 of the label key; the
claim shows the label key, and for every opened sample its path to R (:mod:`indelible.keys.labels`). Since R depends on
every image of the set and the labels on R, the images were there before their labels.

| what does not fit | what it would mean |
|---|---|
| the label key's hash | another label key than the committed one: sought after the suspect was known |
| the path to R | the sample is not of the set that the labels were drawn for: made for its label |
| a label | it was chosen, not drawn |
| fixed: a label that is not the target, a carrier that is of it | samples that the key would not make |
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import torch

from indelible.base.errors import DamagedFileError
from indelible.base.merkle import root_from_path
from indelible.evidence.commitment import Commitment
from indelible.evidence.decision import KEYED
from indelible.keys.labels import drawn_labels, set_leaf

__all__ = ["check_labels"]

_MOST_CLASSES = 1 << 20
_HEX = re.compile(r"[0-9a-f]{64}")


def check_labels(stated: Commitment, claim: Mapping[str, Any]) -> str:
    """Draw the labels of the opened samples again, or compare them with the target; say what was found.

    Args:
        stated: The commitment.
        claim: Of a known form; its openings lead to the committed root.

    Raises:
        DamagedFileError: The first thing that does not fit.
    """
    classes = stated.key.get("classes")
    if type(classes) is not int or not 2 + (stated.test == KEYED) <= classes <= _MOST_CLASSES:
        raise DamagedFileError("the commitment does not say how many classes there are")
    for entry in claim["opened"]:
        if not (0 <= entry["label"] < classes and 0 <= entry["true"] < classes):
            raise DamagedFileError(f"the label or the true class of sample {entry['index']} is no class")
    if stated.test == KEYED:
        return _keyed(stated, claim, classes)
    if claim["label_key"] is not None or any(entry["set_path"] for entry in claim["opened"]):
        raise DamagedFileError("the claim shows a label key, but the committed key has no keyed labels")
    return _untargeted(claim) if stated.key.get("labels") == "untargeted" else _fixed(stated, claim)


def _untargeted(claim: Mapping[str, Any]) -> str:
    for entry in claim["opened"]:
        if entry["label"] != entry["true"]:
            raise DamagedFileError(
                f"the label of sample {entry['index']} is {entry['label']}, not its carrier's class {entry['true']}"
            )
    return "all are the carriers' own classes, which a hit is not"


def _fixed(stated: Commitment, claim: Mapping[str, Any]) -> str:
    target = stated.key.get("target")
    for entry in claim["opened"]:
        if entry["label"] != target:
            raise DamagedFileError(f"the label of sample {entry['index']} is {entry['label']}, not the target {target}")
        if entry["true"] == target:
            raise DamagedFileError(f"the carrier of sample {entry['index']} is of the target class already")
    return f"all are the target, class {target}"


def _keyed(stated: Commitment, claim: Mapping[str, Any], classes: int) -> str:
    shown, committed = claim["label_key"], stated.labels
    if committed is None or shown is None or not _HEX.fullmatch(shown):
        raise DamagedFileError("the claim does not show the label key: 64 hexadecimal digits")
    key, root = bytes.fromhex(shown), bytes.fromhex(committed["set"])
    if hashlib.sha256(key).hexdigest() != committed["key"]:
        raise DamagedFileError("the label key is not the one that was committed to")
    opened, with_truth = claim["opened"], stated.key.get("kind") != "unrelated"
    for entry in opened:
        leaf = _leaf(entry, with_truth=with_truth)
        path = [bytes.fromhex(one) for one in entry["set_path"] if _HEX.fullmatch(one)]
        if len(path) != len(entry["set_path"]):
            raise DamagedFileError(f"the path of sample {entry['index']} in its set is no list of hashes")
        if root_from_path(leaf, entry["index"], stated.samples, path) != root:
            raise DamagedFileError(f"sample {entry['index']} does not belong to the set that labels were drawn for")
    rows = torch.tensor([entry["index"] for entry in opened])
    true = torch.tensor([entry["true"] for entry in opened]) if with_truth else None
    labels = drawn_labels(key, root, rows, true, classes=classes, count=stated.samples)
    for entry, label in zip(opened, labels.tolist(), strict=True):
        if entry["label"] != label:
            raise DamagedFileError(
                f"the label of sample {entry['index']} is {entry['label']}, but the label key draws {label}"
            )
    return f"{len(opened)} labels drawn again by the committed label key"


def _leaf(entry: Mapping[str, Any], *, with_truth: bool) -> bytes:
    if not (_HEX.fullmatch(entry["salt"]) and _HEX.fullmatch(entry["image"])):
        raise DamagedFileError(f"the salt or the digest of sample {entry['index']} is no hash")
    return set_leaf(bytes.fromhex(entry["salt"]), entry["image"], entry["true"] if with_truth else None)
