"""A codebook in evidence: what is committed, what a claim shows, and what an auditor checks without the secret.

Every part of a codebook that an auditor has to see is derived from the secret by a label of its own
(:mod:`indelible.keys.codebook`), so each can be shown without the others and without the secret. The tables of
docs/evidence.md say which part is committed, shown or kept, and what a part that does not fit would mean.

:func:`check_images` derives the marks from the shown seeds and draws them on the shown carriers, so that no image of a
sample has to be trusted: its digest is what the query log must hold. From the answers in the log,
:func:`indelible.evidence.decision.judge` computes the p-value again.
"""

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import Data
from indelible.evidence.canonical import Hash, fields_of, require
from indelible.evidence.opening import Questions, check_pictures, hex_paths, leads_to
from indelible.keys import codebook as derived
from indelible.keys.derive import Choices
from indelible.keys.key import Key
from indelible.keys.labels import sample_salts, set_leaf
from indelible.keys.marks import seeded_mark
from indelible.keys.unrelated import UnrelatedMark

if TYPE_CHECKING:
    from indelible.evidence.commitment import Commitment

SET_ASIDE, AUDITOR, NO_CARRIERS = "set aside", "auditor", "none"
_MOST_BYTES = 1 << 30  # of all samples together, and of the integers that the exact test computes with
_MOST = 10_000_000
_FIELDS = {"class_key": Hash, "choice_key": Hash, "each": int, "carriers": str, "count": int | None}
_SHOWN = {"class_key": Hash, "choice_key": Hash, "count": int | None, "images": list}
_MARK = {"index": int, "seed": Hash, "path": list[Hash]}
_IMAGE = {"row": int, "image": Hash, "true": int | None, "salt": Hash | None, "path": list[Hash]}


def statement(key: Key, carriers: Any, samples: int | None) -> tuple[Sequence[bytes], dict[str, Any]]:
    """Return the leaves of a commitment, and what it says of them; ``samples`` is of all marks together."""
    marks, source, count = key.marks or 0, _source(key), None
    each = derived.most_carriers(key.shape, marks) if samples is None else samples // marks
    if each < 1:
        raise InputError(f"a codebook of {marks} marks asks every mark: at least {marks} samples, got {samples}.")
    if source == SET_ASIDE:
        count = len(_claim_carriers(source, key, carriers))
    elif key.pool is not None:
        count = math.prod(key.pool.shape[:2])
    about = {**_key_hashes(key), "each": each, "carriers": source, "count": count}
    return derived.mark_leaves(key.secret, marks), {"codebook": about}


def _shown_keys(key: Key) -> dict[str, bytes]:
    """Return the two keys that a claim will show."""
    return {"class_key": derived.class_key(key.secret), "choice_key": derived.choice_key(key.secret)}


def _key_hashes(key: Key) -> dict[str, str]:
    return {name: hashlib.sha256(value).hexdigest() for name, value in _shown_keys(key).items()}


def _claim_carriers(source: str, key: Key, carriers: Any) -> Data:
    """Return the images that a claim is made on; refuse others than those set aside, if any were."""
    data = as_data(carriers, classes=key.classes)
    if source == SET_ASIDE and not key.is_bound_to(data):
        raise InputError(
            f"the key is bound to carriers that were set aside when it was made, and {data.name!r} ({len(data)} "
            "images) is not that set. Give those images, all of them and in their order."
        )
    key.check_fits(data)
    return data


def material(stated: "Commitment", key: Key, carriers: Any) -> tuple[Data, str | None]:
    """Return the images that a claim is made on, and the digest of those that an auditor brings."""
    source = (stated.codebook or {})["carriers"]
    data = _claim_carriers(source, key, carriers)
    if source != AUDITOR:
        return data, None
    held = data.gather(torch.arange(len(data)))
    return data, hashlib.sha256(canonical_json([image_digests(held.images.cpu()), held.labels.tolist()])).hexdigest()


def opened(
    stated: "Commitment", key: Key, data: Data, numbers: Sequence[int]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what a claim shows of the marks ``numbers``, and the images of the bundle."""
    about, marks, pool = stated.codebook or {}, key.marks or 0, key.pool
    own_images = about["carriers"] == NO_CARRIERS
    paths = hex_paths(derived.mark_leaves(key.secret, marks), numbers)
    seeds = [
        {"index": number, "seed": derived.mark_seed(key.secret, number).hex(), "path": path}
        for number, path in zip(numbers, paths, strict=True)
    ]
    shown: dict[str, Any] = {name: value.hex() for name, value in _shown_keys(key).items()}
    shown["count"] = about["count"] if own_images else len(data)
    _, rows = _asked(about, marks, seeds, shown)
    true: Sequence[int | None] = [None] * len(rows)
    if not own_images:
        carriers = data.gather(torch.tensor(rows))
        held, true = carriers.images.cpu(), carriers.labels.tolist()
    else:
        held = torch.empty((0, *key.shape), dtype=torch.uint8) if pool is None else pool.flatten(0, 1)[rows]
    # The classes may be bound to the images: then each is shown with its salt and its path.
    salts: Sequence[str | None] = [None] * len(rows)
    in_set: Sequence[list[str]] = [[] for _ in rows]
    if key.bound is not None:
        leaves = derived.bound_leaves(key.secret, data if pool is None else pool)
        hidden = sample_salts(key.secret, len(leaves))
        salts, in_set = [hidden[row].hex() for row in rows], hex_paths(leaves, rows)
    shown["images"] = [
        {"row": row, "image": image, "true": label, "salt": salt, "path": path}
        for row, image, label, salt, path in zip(rows, image_digests(held), true, salts, in_set, strict=True)
    ]
    return {"opened": seeds, "codebook": shown}, {"images": held} if rows else {}


def check_statement(found: Mapping[str, Any], key: Key, name: str) -> None:
    """Refuse a statement whose codebook does not fit ``key``, which has its key's settings; nothing is trusted."""
    about = found["codebook"]
    if key.labels != "codebook":
        require(about is None, f"{name} holds a codebook, but its key has none.")
        return
    require(about is not None, f"{name} does not say what is committed of the codebook.")
    fields_of(about, _FIELDS, f"{name}, codebook")
    marks, each, count, unrelated = key.marks or 0, about["each"], about["count"], key.kind == "unrelated"
    require(found["samples"] == marks, f"{name} commits to {found['samples']} marks, but its key has {marks}.")
    fits = about["carriers"] == _source(key) and (count is None) == (key.bound is None)
    require(fits, f"{name}: carriers of the codebook do not fit the kind of its key.")
    bound = not unrelated or (key.bound is None) == (found["key"]["pool"] is None)
    require(bound, f"{name}: the pool of the codebook is not bound, or there is none.")
    counted = count is None or (0 < count <= _MOST and not (unrelated and count % marks))
    require(counted, f"{name}: {count} carriers, or images of a pool, do not fit {marks} marks.")
    integers = marks**3 * each * math.log2(key.classes) / 8
    few = each > 0 and each * marks * math.prod(key.shape) <= _MOST_BYTES and integers <= _MOST_BYTES
    require(few, f"{name} commits to no carriers for a mark, or to too many: {each}.")


def _source(key: Key) -> str:
    if key.kind == "unrelated":
        return NO_CARRIERS
    return AUDITOR if key.bound is None else SET_ASIDE


def _asked(
    about: Mapping[str, Any], marks: int, opened: Sequence[Mapping[str, Any]], shown: Mapping[str, Any]
) -> tuple[int, list[int]]:
    """Return how many images of every mark are asked, and which carriers, or images of the pool, have to be shown.

    As many as committed, fewer if there are not so many. ``count`` is the carriers that there are; with a pool, images
    of all marks together; None for generated images.
    """
    each, count = int(about["each"]), shown["count"]
    if count is None:
        return each, []
    if about["carriers"] != NO_CARRIERS:
        each = min(each, count)
        return each, derived.chosen_rows(Choices(bytes.fromhex(shown["choice_key"])), count, each).tolist()
    own = count // marks
    each = min(each, own - own // 2)  # half of a pool is for embedding
    rows = (pool_rows(bytes.fromhex(entry["seed"]), entry["index"], own, each) for entry in opened)
    return each, list(itertools.chain(*rows))


def pool_rows(seed: bytes, number: int, size: int, each: int) -> list[int]:
    """Return the places in a pool of the images that mark ``number`` is asked with; ``size`` images belong to it."""
    # The mark orders whatever stands in its pool: numbers here, in place of images.
    places = UnrelatedMark(secret=seed, shape=(1, 1, 1), pool=torch.arange(size)).samples(None, each, "verify")
    return [number * size + place for place in places.tolist()]


def stamped(settings: Mapping[str, Any], seeds: Sequence[bytes], plain: Tensor | None, each: int) -> Tensor:
    """Return the samples that seeds decide, mark by mark: uint8 (m * each, C, H, W); no secret is needed.

    ``plain`` are the carriers, uint8 (each, C, H, W); None for images that are generated.
    """
    return torch.cat([seeded_mark(seed, settings).samples(plain, each, "verify") for seed in seeds])


def check_form(claim: Mapping[str, Any]) -> None:
    """Refuse a claim whose parts that show a codebook are not of the known form."""
    shown = claim["codebook"]
    require(shown is not None, "the claim does not show the codebook")
    require(claim["label_key"] is None, "the claim shows a label key, but the committed key is a codebook")
    fields_of(shown, _SHOWN, "the codebook of the claim")
    for name, entries, kinds in (("mark", claim["opened"], _MARK), ("image", shown["images"], _IMAGE)):
        for entry in entries:
            fields_of(entry, kinds, f"an opened {name}")


def check_openings(stated: "Commitment", claim: Mapping[str, Any]) -> str:
    """Refuse an opened seed that does not lead to the committed root; say what was found."""
    for entry in claim["opened"]:
        leaf = derived.mark_leaf(entry["index"], bytes.fromhex(entry["seed"]))
        found = leads_to(stated.root, leaf, entry["index"], stated.samples, entry["path"])
        require(found, f"the seed of mark {entry['index']} does not lead to the committed root")
    return f"the seeds of {len(claim['opened'])} of {stated.samples} marks lead to the committed root"


def check_labels(stated: "Commitment", claim: Mapping[str, Any]) -> str:
    """Draw the classes of the opened marks again; say what was found."""
    return f"the classes of {len(_classes(stated, claim))} marks drawn again by the committed class key"


def _classes(stated: "Commitment", claim: Mapping[str, Any]) -> Tensor:
    """Return the classes (int64, (m,)) of the opened marks, drawn again by the committed class key."""
    shown, root = _shown_key("class", stated, claim), bytes.fromhex(stated.root + (stated.key["bound"] or ""))
    drawn = derived.drawn_classes(shown, root, classes=stated.key["classes"], marks=stated.samples)
    return drawn[[entry["index"] for entry in claim["opened"]]]


def _shown_key(name: str, stated: "Commitment", claim: Mapping[str, Any]) -> bytes:
    """Return the class or choice key that a claim shows; refuse one that was not committed to."""
    shown = bytes.fromhex(claim["codebook"][f"{name}_key"])
    same = hashlib.sha256(shown).hexdigest() == (stated.codebook or {})[f"{name}_key"]
    require(same, f"the {name} key is not the one that was committed to")
    return shown


def check_images(
    stated: "Commitment", claim: Mapping[str, Any], tensors: Mapping[str, Tensor], given: Any = None
) -> Questions:
    """Return what had to be asked: samples of the opened marks, derived here, their classes, those of the carriers.

    ``tensors`` are those of the bundle: ``images``, uint8 (n, C, H, W), or none; ``given`` are the checker's own
    carriers, if any.
    """
    require(tensors.keys() <= {"images"}, "the images hold other tensors than images")
    about, shown, key, held = stated.codebook or {}, claim["codebook"], stated.key, tensors.get("images")
    _shown_key("choice", stated, claim)
    entries, count = shown["images"], shown["count"]
    if about["carriers"] == AUDITOR:
        require(0 < (count or 0) <= _MOST, "the claim does not say how many carriers were brought")
    else:
        same = count == about["count"]
        require(same, f"the commitment is to {about['count']} carriers, the claim speaks of {count}")
    each, rows = _asked(about, stated.samples, claim["opened"], shown)
    chosen = [entry["row"] for entry in entries] == rows
    require(chosen, "the images shown are not those that the committed choice gives: picked, or left out")
    require(held is not None or not entries, "the images of the carriers are not in the bundle")
    if held is not None:
        require(bool(entries), "the bundle holds images of carriers, but the claim shows none")
        check_pictures(held, [entry["image"] for entry in entries], key["shape"], "carriers")
    for entry in entries:
        _check_entry(entry, about["carriers"], count, key)
    if given is not None and about["carriers"] != NO_CARRIERS:
        _compare(entries, count, given, key["classes"])
    true = None if about["carriers"] == NO_CARRIERS else torch.tensor([entry["true"] for entry in entries])
    if true is not None or held is None:  # images of a pool are the samples themselves
        held = stamped(key, [bytes.fromhex(entry["seed"]) for entry in claim["opened"]], held, each)
    return Questions(samples=held, labels=_classes(stated, claim), true=true)


def _check_entry(entry: Mapping[str, Any], source: str, count: int, key: Mapping[str, Any]) -> None:
    """Compare one shown image with the set that the classes are bound to; what an auditor brought is in none."""
    row, true, salt = entry["row"], entry["true"], entry["salt"]
    known = (true is None) == (source == NO_CARRIERS) and 0 <= (true or 0) < key["classes"]
    require(known, f"the true class of carrier {row} is not a class")
    if source == AUDITOR:
        bare = salt is None and not entry["path"]
        require(bare, f"carrier {row} was brought by the auditor, but comes with a salt or a path")
    else:
        leaf = set_leaf(bytes.fromhex(salt or ""), entry["image"], true)
        found = leads_to(key["bound"], leaf, row, count, entry["path"])
        require(found, f"carrier {row} is not one of those that the classes are bound to")


def _compare(entries: Sequence[Mapping[str, Any]], count: int, given: Any, classes: int) -> None:
    """Compare the shown images with those that the checker gave."""
    data = as_data(given, classes=classes)
    same = len(data) == count
    require(same, f"the claim is on {count} carriers, but the images that you gave are {len(data)}")
    own = data.gather(torch.tensor([entry["row"] for entry in entries]))
    for entry, *image in zip(entries, image_digests(own.images.cpu()), own.labels.tolist(), strict=True):
        same = [entry["image"], entry["true"]] == image
        require(same, f"carrier {entry['row']} is not the image, or not of the class, that you gave")


def check_key(stated: "Commitment", key: Key, _carriers: Any) -> str:
    """Derive all committed marks, and the two keys, from the key that is shown; say what was found."""
    root = derived.marks_root(key.secret, stated.samples).hex()
    same = _key_hashes(key).items() <= (stated.codebook or {}).items() and root == stated.root
    require(same, "the key does not give the committed marks and classes")
    return "all committed marks, classes and the choice of carriers are derived from the key"
