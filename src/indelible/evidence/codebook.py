"""A codebook in evidence: what is committed, what a claim shows, and what an auditor checks without the secret.

Every part of a codebook that an auditor has to see is derived from the secret by a label of its own
(:mod:`indelible.keys.codebook`), so each can be shown without the others and without the secret. The tables of
docs/evidence.md say which part is committed, shown or kept, and what a part that does not fit would mean.

:func:`check_images` derives the marks from the shown seeds and draws them on the shown carriers, so that no image of a
sample has to be trusted: its digest is what the query log must hold. From the answers in the log,
:func:`indelible.evidence.decision.decide_codebook` computes the p-value again.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import Data
from indelible.evidence.canonical import Hash, Kind, fields_of
from indelible.evidence.opening import Questions, hex_paths, leads_to, settings_key
from indelible.keys.codebook import (
    bound_leaves,
    choice_key,
    chosen_rows,
    class_key,
    drawn_classes,
    mark_leaf,
    mark_leaves,
    mark_seed,
    most_carriers,
)
from indelible.keys.derive import Choices
from indelible.keys.key import Key
from indelible.keys.labels import sample_salts, set_leaf
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


def codebook_statement(key: Key, carriers: Any, samples: int | None) -> dict[str, Any]:
    """Return what a commitment says of a codebook beside its marks; ``samples`` is of all marks together."""
    marks, source, count = key.marks or 0, _source(key), None
    each = most_carriers(key.shape, marks) if samples is None else samples // marks
    if each < 1:
        raise InputError(f"a codebook of {marks} marks asks every mark: at least {marks} samples, got {samples}.")
    if source == SET_ASIDE:
        count = len(claim_carriers(source, key, carriers))
    elif key.pool is not None:
        count = math.prod(key.pool.shape[:2])
    return {**key_hashes(key), "each": each, "carriers": source, "count": count}


def key_hashes(key: Key) -> dict[str, str]:
    """Return the hashes of the two keys that a claim will show."""
    shown = {"class_key": class_key(key.secret), "choice_key": choice_key(key.secret)}
    return {name: hashlib.sha256(value).hexdigest() for name, value in shown.items()}


def claim_carriers(source: str, key: Key, carriers: Any) -> Data:
    """Return the images that a claim is made on; refuse others than those set aside, if any were."""
    data = as_data(carriers, classes=key.classes)
    if source == SET_ASIDE and not key.is_bound_to(data):
        raise InputError(
            f"the key is bound to carriers that were set aside when it was made, and {data.name!r} ({len(data)} "
            "images) is not that set. Give those images, all of them and in their order."
        )
    key.check_fits(data)
    return data


def open_marks(
    about: Mapping[str, Any], key: Key, data: Data, numbers: Sequence[int]
) -> tuple[Questions, dict[str, Any], dict[str, Tensor]]:
    """Open the marks ``numbers`` on the images of :func:`claim_carriers`.

    Returns what is asked, what the claim shows of it, and the images of the bundle.
    """
    marks, own_images = key.marks or 0, about["carriers"] == NO_CARRIERS
    count = about["count"] if own_images else len(data)
    each = _asked_each(about, marks, count)
    whole = key.samples(data, purpose="verify", count=each * marks)
    samples = whole.subset(torch.cat([torch.arange(number * each, (number + 1) * each) for number in numbers]))
    paths = hex_paths(mark_leaves(key.secret, marks), numbers)
    opened = [
        {"index": number, "seed": mark_seed(key.secret, number).hex(), "path": path}
        for number, path in zip(numbers, paths, strict=True)
    ]
    shown = {"class_key": class_key(key.secret).hex(), "choice_key": choice_key(key.secret).hex(), "count": count}
    rows = _rows(about, marks, opened, shown, each)
    classes = key.codebook().classes[list(numbers)]
    true = None if samples.true is None else samples.true[:each]
    questions = Questions(samples=samples.images, labels=classes, true=true)
    held = samples.images if own_images else data.gather(torch.tensor(rows)).images.cpu()
    images = _entries(key, data, rows, held[: len(rows)], true)
    tensors = {"images": held} if rows else {}
    return questions, {"opened": opened, "codebook": {**shown, "images": images}}, tensors


def _entries(key: Key, data: Data, rows: Sequence[int], held: Tensor, true: Tensor | None) -> list[dict[str, Any]]:
    """Return the shown images as JSON values; with salts and paths, if the classes are bound to them."""
    own: Sequence[int | None] = [None] * len(rows) if true is None else true.tolist()
    salts: Sequence[str | None] = [None] * len(rows)
    paths: Sequence[list[str]] = [[] for _ in rows]
    if key.bound is not None:
        leaves = bound_leaves(key.secret, data if key.pool is None else key.pool)
        hidden = sample_salts(key.secret, len(leaves))
        salts, paths = [hidden[row].hex() for row in rows], hex_paths(leaves, rows)
    return [
        {"row": row, "image": image, "true": label, "salt": salt, "path": path}
        for row, image, label, salt, path in zip(rows, image_digests(held), own, salts, paths, strict=True)
    ]


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
    made = settings_key(key, bytes(32))
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


def _asked_each(about: Mapping[str, Any], marks: int, count: int | None) -> int:
    """Return how many images of every mark are asked: as many as committed, fewer if there are not so many.

    ``count`` is the carriers that there are; with a pool, images of all marks together; None for generated images.
    """
    if count is None:
        return int(about["each"])
    if about["carriers"] == NO_CARRIERS:  # half of a pool is for embedding
        each = count // marks
        count = each - each // 2
    return min(int(about["each"]), count)


def _rows(
    about: Mapping[str, Any], marks: int, opened: Sequence[Mapping[str, Any]], shown: Mapping[str, Any], each: int
) -> list[int]:
    """Return which carriers, or images of the pool, have to be shown."""
    count = shown["count"]
    if about["carriers"] != NO_CARRIERS:
        found: list[int] = chosen_rows(Choices(bytes.fromhex(shown["choice_key"])), count, each).tolist()
        return found
    if count is None:
        return []
    return [
        row for entry in opened
        for row in pool_rows(bytes.fromhex(entry["seed"]), entry["index"], count // marks, each)
    ]  # fmt: skip


def pool_rows(seed: bytes, number: int, size: int, each: int) -> list[int]:
    """Return the places in a pool of the images that mark ``number`` is asked with; ``size`` images belong to it."""
    # The mark orders whatever stands in its pool: numbers here, in place of images.
    places = UnrelatedMark(secret=seed, shape=(1, 1, 1), pool=torch.arange(size)).draw(each, "verify")
    return [number * size + place for place in places.tolist()]


def stamped(settings: Mapping[str, Any], seeds: Sequence[bytes], plain: Tensor | None, each: int) -> Tensor:
    """Return the samples that seeds decide, mark by mark: uint8 (m * each, C, H, W); no secret is needed.

    ``plain`` are the carriers, uint8 (each, C, H, W); None for images that are generated.
    """
    return torch.cat([seeded_mark(seed, settings).samples(plain, each, "verify") for seed in seeds])


def check_form(claim: Mapping[str, Any]) -> None:
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


def check_openings(stated: "Commitment", claim: Mapping[str, Any]) -> str:
    """Refuse an opened seed that does not lead to the committed root; say what was found."""
    for entry in claim["opened"]:
        leaf = mark_leaf(entry["index"], bytes.fromhex(entry["seed"]))
        if not leads_to(stated.root, leaf, entry["index"], stated.samples, entry["path"]):
            raise DamagedFileError(f"the seed of mark {entry['index']} does not lead to the committed root")
    return f"the seeds of {len(claim['opened'])} of {stated.samples} marks lead to the committed root"


def check_classes(stated: "Commitment", claim: Mapping[str, Any]) -> Tensor:
    """Return the classes (int64, (m,)) of the opened marks, drawn again by the committed class key."""
    shown = bytes.fromhex(claim["codebook"]["class_key"])
    if stated.codebook is None or hashlib.sha256(shown).hexdigest() != stated.codebook["class_key"]:
        raise DamagedFileError("the class key is not the one that was committed to")
    root = bytes.fromhex(stated.root + (stated.key["bound"] or ""))
    drawn = drawn_classes(shown, root, classes=stated.key["classes"], marks=stated.samples)
    return drawn[[entry["index"] for entry in claim["opened"]]]


def check_images(
    stated: "Commitment", claim: Mapping[str, Any], tensors: Mapping[str, Tensor], given: Any = None
) -> Questions:
    """Return what had to be asked: samples of the opened marks, derived here, their classes, those of the carriers.

    ``tensors`` are those of the bundle: ``images``, uint8 (n, C, H, W), or none; ``given`` are the checker's own
    carriers, if any.
    """
    if not tensors.keys() <= {"images"}:
        raise DamagedFileError("the images hold other tensors than images")
    about, shown, key, held = stated.codebook or {}, claim["codebook"], stated.key, tensors.get("images")
    _check_choice(about, shown)
    entries, count = shown["images"], shown["count"]
    each = _asked_each(about, stated.samples, count)
    if [entry["row"] for entry in entries] != _rows(about, stated.samples, claim["opened"], shown, each):
        raise DamagedFileError("the images shown are not those that the committed choice gives: picked, or left out")
    _check_held(entries, held, key["shape"])
    for entry in entries:
        _check_entry(entry, about["carriers"], count, key)
    true = None
    if about["carriers"] != NO_CARRIERS:
        true = torch.tensor([entry["true"] for entry in entries])
        if given is not None:
            _compare(entries, count, given, key["classes"])
    if about["carriers"] != NO_CARRIERS or held is None:  # images of a pool are the samples themselves
        held = stamped(key, [bytes.fromhex(entry["seed"]) for entry in claim["opened"]], held, each)
    return Questions(samples=held, labels=check_classes(stated, claim), true=true)


def _check_choice(about: Mapping[str, Any], shown: Mapping[str, Any]) -> None:
    """Refuse a choice key, or a number of carriers, that are not those committed to."""
    count = shown["count"]
    if hashlib.sha256(bytes.fromhex(shown["choice_key"])).hexdigest() != about["choice_key"]:
        raise DamagedFileError("the choice key is not the one that was committed to")
    if about["carriers"] == AUDITOR:
        if count is None or not 0 < count <= _MOST:
            raise DamagedFileError("the claim does not say how many carriers were brought")
    elif count != about["count"]:
        raise DamagedFileError(f"the commitment is to {about['count']} carriers, the claim speaks of {count}")


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
