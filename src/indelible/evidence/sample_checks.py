"""Check that samples and labels are the committed ones, as an auditor does, without the secret.

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
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from indelible.base.checks import is_hash
from indelible.base.errors import DamagedFileError
from indelible.base.merkle import leaf_hash
from indelible.data.digests import image_digests
from indelible.data.images import ImageData
from indelible.evidence.canonical import Kind, canonical, fields_of
from indelible.evidence.commitment import Commitment
from indelible.evidence.decision import KEYED
from indelible.evidence.opening import leads_to
from indelible.keys.labels import drawn_labels, set_leaf

_MOST_CLASSES = 1 << 20
_ENTRY: Mapping[str, Kind] = {
    "index": int, "salt": str, "image": str, "label": int, "carrier": str, "true": int, "path": list,
    "set_path": list,
}  # fmt: skip


def check_form(opened: Sequence[Any]) -> None:
    """Refuse opened samples that are not of the known form."""
    for entry in opened:
        fields_of(entry, _ENTRY, "an opened sample")
        hashes = [entry["salt"], *entry["path"], *entry["set_path"]]
        if not all(isinstance(one, str) and len(one) == 64 for one in hashes):
            raise DamagedFileError(f"the opening of sample {entry['index']} holds something that is not a hash")


def check_openings(stated: Commitment, opened: Sequence[Mapping[str, Any]]) -> None:
    """Refuse an opened sample that does not lead to the committed root."""
    for entry in opened:
        leaf = leaf_hash(canonical({name: entry[name] for name in ("salt", "image", "label", "carrier", "true")}))
        if not leads_to(stated.root, leaf, entry["index"], stated.samples, entry["path"]):
            raise DamagedFileError(f"sample {entry['index']} does not lead to the committed root")


def check_labels(stated: Commitment, claim: Mapping[str, Any]) -> str:
    """Draw the labels of the opened samples again, or compare them with the target; say what was found."""
    classes, opened, target = stated.key.get("classes"), claim["opened"], stated.key.get("target")
    if type(classes) is not int or not 2 + (stated.test == KEYED) <= classes <= _MOST_CLASSES:
        raise DamagedFileError("the commitment does not say how many classes there are")
    for entry in opened:
        if not (0 <= entry["label"] < classes and 0 <= entry["true"] < classes):
            raise DamagedFileError(f"the label or the true class of sample {entry['index']} is not a class")
    if stated.test == KEYED:
        return _keyed(stated, claim, classes)
    if claim["label_key"] is not None or any(entry["set_path"] for entry in opened):
        raise DamagedFileError("the claim shows a label key, but the committed key has no keyed labels")
    untargeted = stated.key.get("labels") == "untargeted"
    for entry in opened:
        number, label, true = entry["index"], entry["label"], entry["true"]
        if untargeted and label != true:
            raise DamagedFileError(f"the label of sample {number} is {label}, not its carrier's class {true}")
        if not untargeted and label != target:
            raise DamagedFileError(f"the label of sample {number} is {label}, not the target {target}")
        if not untargeted and true == target:
            raise DamagedFileError(f"the carrier of sample {number} is of the target class already")
    return (
        "all are the carriers' own classes, which a hit is not" if untargeted else f"all are the target, class {target}"
    )


def _keyed(stated: Commitment, claim: Mapping[str, Any], classes: int) -> str:
    shown, committed, opened = claim["label_key"], stated.labels, claim["opened"]
    if committed is None or not is_hash(shown):
        raise DamagedFileError("the claim does not show the label key: 64 hexadecimal digits")
    key = bytes.fromhex(shown)
    if hashlib.sha256(key).hexdigest() != committed["key"]:
        raise DamagedFileError("the label key is not the one that was committed to")
    with_truth = stated.key.get("kind") != "unrelated"
    for entry in opened:
        if not (is_hash(entry["salt"]) and is_hash(entry["image"])):
            raise DamagedFileError(f"the salt or the digest of sample {entry['index']} is not a hash")
        leaf = set_leaf(bytes.fromhex(entry["salt"]), entry["image"], entry["true"] if with_truth else None)
        if not leads_to(committed["set"], leaf, entry["index"], stated.samples, entry["set_path"]):
            raise DamagedFileError(f"sample {entry['index']} does not belong to the set that labels were drawn for")
    rows = torch.tensor([entry["index"] for entry in opened])
    true = torch.tensor([entry["true"] for entry in opened]) if with_truth else None
    root = bytes.fromhex(committed["set"])
    labels = drawn_labels(key, root, rows, true, classes=classes, count=stated.samples)
    for entry, label in zip(opened, labels.tolist(), strict=True):
        if entry["label"] != label:
            raise DamagedFileError(
                f"the label of sample {entry['index']} is {entry['label']}, but the label key draws {label}"
            )
    return f"{len(opened)} labels drawn again by the committed label key"


def check_images(
    stated: Commitment, opened: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> ImageData:  # fmt: skip
    """Compare samples and carriers with the committed digests; return the carriers with their true classes."""
    if tensors.keys() != {"samples", "carriers"}:
        raise DamagedFileError("the images hold other tensors than samples and carriers")
    shape = stated.key.get("shape")
    if not isinstance(shape, list):
        raise DamagedFileError("the commitment does not say the shape of its images")
    for name, digest in (("samples", "image"), ("carriers", "carrier")):
        found = tensors[name]
        if found.dtype != torch.uint8 or list(found.shape) != [len(opened), *shape]:
            raise DamagedFileError(f"the {name} are not {len(opened)} images of the committed shape")
        for entry, actual in zip(opened, image_digests(found), strict=True):
            if entry[digest] != actual:
                raise DamagedFileError(f"the image of sample {entry['index']} ({name}) is not the committed one")
    true, names = torch.tensor([one["true"] for one in opened]), tuple(map(str, range(stated.key["classes"])))
    return ImageData(tensors["carriers"], true, names, "carriers")
