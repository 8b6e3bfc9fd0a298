"""Check that a codebook is the committed one, as an auditor does, without the secret.

| what does not fit | what it would mean |
|---|---|
| a seed's path to the committed root | another mark than the committed one: sought after the suspect was known |
| the hash of the class key | the classes were drawn anew after the suspect was known |
| the hash of the choice key, a row | the carriers were picked, not those that the committed choice gives |
| a carrier's path to its root | not one of the images that the classes are bound to |
| a carrier, beside the auditor's own images | not one that he brought, or not with its true class |

The marks are derived from the shown seeds and drawn on the shown carriers here, so that no image of a sample has to be
trusted: its digest is what the query log must hold.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.evidence.canonical import Hash, Kind, fields_of
from indelible.evidence.opening import leads_to, settings_key
from indelible.keys.codebook import chosen_rows, drawn_classes, mark_leaf
from indelible.keys.derive import Choices
from indelible.keys.key import Key
from indelible.keys.labels import set_leaf
from indelible.keys.marks import seeded_mark
from indelible.keys.rules import VERSIONS
from indelible.keys.unrelated import UnrelatedMark

if TYPE_CHECKING:
    from indelible.evidence.commitment import Commitment

SET_ASIDE, AUDITOR, NO_CARRIERS = "set aside", "auditor", "none"
_FIELDS: Mapping[str, Kind] = {
    "class_key": Hash, "choice_key": Hash, "each": int, "carriers": str, "count": (int, type(None))
}  # fmt: skip
_MOST_BYTES = 1 << 30  # of all samples together, and of the integers that the exact test computes with
_MOST = 10_000_000
_SHOWN: Mapping[str, Kind] = {
    "class_key": Hash, "choice_key": Hash, "count": (int, type(None)), "images": list
}  # fmt: skip
_MARK: Mapping[str, Kind] = {"index": int, "seed": Hash, "path": list[Hash]}
_IMAGE: Mapping[str, Kind] = {
    "row": int, "image": Hash, "true": (int, type(None)), "salt": (Hash, type(None)), "path": list[Hash]
}  # fmt: skip


def check_statement(found: Mapping[str, Any], name: str) -> None:
    """Refuse a statement whose codebook does not fit its key's settings; nothing in it is trusted."""
    about, key = found["codebook"], found["key"]
    if key.get("labels") != "codebook":
        if about is not None:
            raise DamagedFileError(f"{name} holds a codebook, but its key has none.")
        return
    if about is None:
        raise DamagedFileError(f"{name} does not say what is committed of the codebook.")
    fields_of(about, _FIELDS, f"{name}, codebook")
    if key.get("version") != VERSIONS["codebook"]:
        raise DamagedFileError(
            f"{name} is of a codebook of version {key.get('version')!r:.20}, this package reads "
            f"{VERSIONS['codebook']}. Use the version that made it."
        )
    _check_numbers(found, settings_key(key, bytes(32)), name)


def _check_numbers(found: Mapping[str, Any], made: Key, name: str) -> None:
    """Refuse numbers of marks and carriers that do not fit the settings of the key, ``made`` without its secret."""
    about, key = found["codebook"], found["key"]
    marks, each, count = made.marks or 0, about["each"], about["count"]
    if found["samples"] != marks:
        raise DamagedFileError(f"{name} commits to {found['samples']} marks, but its key has {marks}.")
    if about["carriers"] != _source(made) or (count is None) != (made.bound is None):
        raise DamagedFileError(f"{name}: carriers of the codebook do not fit the kind of its key.")
    if made.kind == "unrelated" and (made.bound is None) != (key.get("pool") is None):
        raise DamagedFileError(f"{name}: the pool of the codebook is not bound, or there is none.")
    if count is not None and (not 0 < count <= _MOST or (made.kind == "unrelated" and count % marks)):
        raise DamagedFileError(f"{name}: {count} carriers, or images of a pool, do not fit {marks} marks.")
    integers = marks**3 * each * math.log2(made.classes) / 8
    if each < 1 or each * marks * math.prod(made.shape) > _MOST_BYTES or integers > _MOST_BYTES:
        raise DamagedFileError(f"{name} commits to no carriers for a mark, or to too many: {each}.")


def _source(key: Key) -> str:
    if key.kind == "unrelated":
        return NO_CARRIERS
    return AUDITOR if key.bound is None else SET_ASIDE


def asked_each(about: Mapping[str, Any], marks: int, count: int | None) -> int:
    """Return how many images of every mark are asked: as many as committed, fewer if there are not so many.

    ``count`` is the carriers that there are; with a pool, images of all marks together; None for generated images.
    """
    if count is None:
        return int(about["each"])
    if about["carriers"] == NO_CARRIERS:  # half of a pool is for embedding
        each = count // marks
        count = each - each // 2
    return min(int(about["each"]), count)


def pool_rows(seed: bytes, number: int, size: int, each: int) -> list[int]:
    """Return the places in a pool of the images that mark ``number`` is asked with; ``size`` images belong to it."""
    # The mark orders whatever stands in its pool: numbers here, in place of images.
    places = UnrelatedMark(secret=seed, shape=(1, 1, 1), pool=torch.arange(size)).draw(each, "verify")
    return [number * size + place for place in places.tolist()]


def stamped(settings: Mapping[str, Any], seeds: Sequence[bytes], plain: Tensor | None, each: int) -> Tensor:
    """Return the samples that seeds decide, mark by mark: uint8 (m * each, C, H, W); no secret is needed.

    ``plain`` are the carriers, uint8 (each, C, H, W); None for images that are generated.
    """
    names = ("kind", "size", "transparency", "strength")
    marks = [seeded_mark(seed, shape=tuple(settings["shape"]), **{name: settings[name] for name in names})
             for seed in seeds]  # fmt: skip
    return torch.cat([mark.samples(plain, each, "verify") for mark in marks])


def check_codebook_form(claim: Mapping[str, Any]) -> None:
    """Refuse a claim whose parts that show a codebook are not of the known form."""
    shown = claim["codebook"]
    if shown is None:
        raise DamagedFileError("the claim does not show the codebook")
    if claim["label_key"] is not None:
        raise DamagedFileError("the claim shows a label key, but the committed key is a codebook")
    fields_of(shown, _SHOWN, "the codebook of the claim")
    for name, entries, kinds in (("mark", claim["opened"], _MARK), ("image", shown["images"], _IMAGE)):
        for entry in entries:
            fields_of(entry, kinds, f"an opened {name}")


def check_marks(stated: "Commitment", claim: Mapping[str, Any]) -> list[bytes]:
    """Return the seeds of the opened marks, which lead to the committed root."""
    seeds = [bytes.fromhex(entry["seed"]) for entry in claim["opened"]]
    for entry, seed in zip(claim["opened"], seeds, strict=True):
        leaf = mark_leaf(entry["index"], seed)
        if not leads_to(stated.root, leaf, entry["index"], stated.samples, entry["path"]):
            raise DamagedFileError(f"the seed of mark {entry['index']} does not lead to the committed root")
    return seeds


def check_classes(stated: "Commitment", claim: Mapping[str, Any]) -> Tensor:
    """Return the classes (int64, (m,)) of the opened marks, drawn again by the committed class key."""
    shown = bytes.fromhex(claim["codebook"]["class_key"])
    if stated.codebook is None or hashlib.sha256(shown).hexdigest() != stated.codebook["class_key"]:
        raise DamagedFileError("the class key is not the one that was committed to")
    root = bytes.fromhex(stated.root + (stated.key["bound"] or ""))
    drawn = drawn_classes(shown, root, classes=stated.key["classes"], marks=stated.samples)
    return drawn[[entry["index"] for entry in claim["opened"]]]


def check_carriers(
    stated: "Commitment", claim: Mapping[str, Any], held: Tensor | None, given: Any = None
) -> tuple[Tensor, Tensor | None]:
    """Return the samples of the opened marks (uint8), derived here, and the true classes of their carriers.

    ``held`` are the images of the bundle, uint8 (n, C, H, W); ``given`` are the checker's own, if any.
    """
    about, shown, key = stated.codebook or {}, claim["codebook"], stated.key
    seeds, entries = [bytes.fromhex(entry["seed"]) for entry in claim["opened"]], shown["images"]
    choice, count = bytes.fromhex(shown["choice_key"]), shown["count"]
    if hashlib.sha256(choice).hexdigest() != about["choice_key"]:
        raise DamagedFileError("the choice key is not the one that was committed to")
    if about["carriers"] == AUDITOR:
        if count is None or not 0 < count <= _MOST:
            raise DamagedFileError("the claim does not say how many carriers were brought")
    elif count != about["count"]:
        raise DamagedFileError(f"the commitment is to {about['count']} carriers, the claim speaks of {count}")
    each = asked_each(about, stated.samples, count)
    rows = _rows(about, stated.samples, claim, choice, each)
    if [entry["row"] for entry in entries] != rows:
        raise DamagedFileError("the images shown are not those that the committed choice gives: picked, or left out")
    _check_held(entries, held, key["shape"])
    for entry in entries:
        _check_entry(entry, about["carriers"], count, key)
    if about["carriers"] == NO_CARRIERS:  # images of a pool are the samples themselves
        return held if held is not None else stamped(key, seeds, None, each), None
    if given is not None:
        _compare(entries, count, given, key["classes"])
    return stamped(key, seeds, held, each), torch.tensor([entry["true"] for entry in entries])


def _check_entry(entry: Mapping[str, Any], source: str, count: int, key: Mapping[str, Any]) -> None:
    """Compare one shown image with the set that the classes are bound to; what an auditor brought is in none."""
    row, true, salt = entry["row"], entry["true"], entry["salt"]
    if (true is None) != (source == NO_CARRIERS) or not 0 <= (true or 0) < key["classes"]:
        raise DamagedFileError(f"the true class of carrier {row} is not a class")
    if source == AUDITOR:
        if salt is not None or entry["path"]:
            raise DamagedFileError(f"carrier {row} was brought by the auditor, but comes with a salt or a path")
        return
    leaf = set_leaf(bytes.fromhex(salt or ""), entry["image"], true)
    if not leads_to(key["bound"], leaf, row, count, entry["path"]):
        raise DamagedFileError(f"carrier {row} is not one of those that the classes are bound to")


def _rows(about: Mapping[str, Any], marks: int, claim: Mapping[str, Any], choice: bytes, each: int) -> list[int]:
    """Return which carriers, or images of the pool, have to be shown."""
    count = claim["codebook"]["count"]
    if about["carriers"] != NO_CARRIERS:
        found: list[int] = chosen_rows(Choices.shown(choice), count, each).tolist()
        return found
    if count is None:
        return []
    return [
        row for entry in claim["opened"]
        for row in pool_rows(bytes.fromhex(entry["seed"]), entry["index"], count // marks, each)
    ]  # fmt: skip


def _check_held(entries: Sequence[Mapping[str, Any]], held: Tensor | None, shape: Sequence[int]) -> None:
    if held is None:
        if entries:
            raise DamagedFileError("the images of the carriers are not in the bundle")
        return
    if held.dtype != torch.uint8 or list(held.shape) != [len(entries), *shape] or not entries:
        raise DamagedFileError(f"the carriers are not {len(entries)} images of the committed shape")
    for entry, actual in zip(entries, image_digests(held), strict=True):
        if entry["image"] != actual:
            raise DamagedFileError(f"the image of carrier {entry['row']} is not the one of the claim")


def _compare(entries: Sequence[Mapping[str, Any]], count: int, given: Any, classes: int) -> None:
    data = as_data(given, classes=classes)
    if len(data) != count:
        raise DamagedFileError(f"the claim is on {count} carriers, but the images that you gave are {len(data)}")
    own = data.gather(torch.tensor([entry["row"] for entry in entries]))
    for entry, image, true in zip(entries, image_digests(own.images.cpu()), own.labels.tolist(), strict=True):
        if (entry["image"], entry["true"]) != (image, true):
            raise DamagedFileError(f"carrier {entry['row']} is not the image, or not of the class, that you gave")
