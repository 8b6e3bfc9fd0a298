"""A codebook in evidence: what the owner commits to, and what a claim shows of it.

Every part of a codebook that an auditor has to see is derived from the secret by a label of its own
(:mod:`indelible.keys.codebook`), so each can be shown without the others and without the secret.

| what | in the commitment | in a claim |
|---|---|---|
| the marks | Merkle root over one leaf for every seed | the seeds of the opened marks, with their paths |
| the class key, lambda | SHA-256 | itself: with the roots of marks and carriers it draws all classes |
| which carriers are asked | SHA-256 of the choice key, and how many | the choice key |
| carriers set aside (``Key.bound``) | their root and number | those asked: image, true class, salt, path |
| carriers that an auditor brings | that he must bring them | those asked, as they were brought |
| a pool of unrelated images | its root and number | those asked: image, salt, path |

A claim asks what :func:`indelible.verify` asks, and comes to the same verdict.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.merkle import audit_paths, tree_root
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import Data
from indelible.evidence.redrawing import AUDITOR, NO_CARRIERS, SET_ASIDE, asked_each, pool_rows
from indelible.keys.codebook import choice_key, class_key, mark_leaf, mark_seed, most_carriers
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.labels import sample_salts, set_leaves
from indelible.verify.statistics import smallest_p_value

__all__ = ["Opening", "check_level", "claim_carriers", "codebook_statement", "key_hashes", "mark_leaves", "open_marks"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Opening:
    """What a claim opens, on the owner's side.

    Attributes:
        samples: What is asked: the opened marks, mark by mark, all on the same carriers.
        drawn: int64 (m,), the classes of the opened marks.
        opened: The opened marks as JSON values.
        shown: What else the claim shows, as JSON values.
        images: uint8 (n, C, H, W): carriers, or images of the pool; None if images are generated.
    """

    samples: WatermarkSamples
    drawn: Tensor
    opened: list[dict[str, Any]]
    shown: dict[str, Any]
    images: Tensor | None


def mark_leaves(key: Key) -> list[bytes]:
    """Return one leaf for every mark of a codebook."""
    return [mark_leaf(number, mark_seed(key.secret, number)) for number in range(key.marks or 0)]


def check_level(classes: int, marks: int, alpha: float) -> None:
    """Refuse a level that so few opened marks cannot reach."""
    least = smallest_p_value(classes, marks)
    if least > alpha:
        raise InputError(
            f"{marks} opened marks over {classes} classes can give p = {least:.1g} at the least, which is above "
            f"alpha = {alpha:g} of a claim. Commit at a larger alpha or to fewer claims, or make a key with more marks."
        )


def codebook_statement(key: Key, carriers: Any, samples: int | None) -> dict[str, Any]:
    """Return what a commitment says of a codebook beside its marks.

    Args:
        key: A codebook.
        carriers: The images set aside; not looked at if the classes are not bound to any.
        samples: Images asked of all marks together; by default as many as in a verification.
    """
    marks = key.marks or 0
    each = most_carriers(key.shape, marks) if samples is None else samples // marks
    if each < 1:
        raise InputError(f"a codebook of {marks} marks asks every mark: at least {marks} samples, got {samples}.")
    source, count = AUDITOR, None
    if key.kind == "unrelated":
        source, count = NO_CARRIERS, None if key.pool is None else math.prod(key.pool.shape[:2])
        _check_pool(key)
    elif key.bound is not None:
        source, count = SET_ASIDE, len(_set_aside(key, carriers))
    return {**key_hashes(key), "each": each, "carriers": source, "count": count}


def key_hashes(key: Key) -> dict[str, str]:
    """Return the hashes of the two keys that a claim will show."""
    shown = {"class_key": class_key(key.secret), "choice_key": choice_key(key.secret)}
    return {name: hashlib.sha256(value).hexdigest() for name, value in shown.items()}


def _set_aside(key: Key, carriers: Any) -> Data:
    data = as_data(carriers, classes=key.classes)
    if not key.is_bound_to(data):
        raise InputError(
            f"the key is bound to carriers that were set aside when it was made, and {data.name!r} ({len(data)} "
            "images) is not that set. Give those images, all of them and in their order."
        )
    return data


def _check_pool(key: Key) -> None:
    if key.pool is not None and tree_root(_pool_leaves(key, image_digests(key.pool.flatten(0, 1)))).hex() != key.bound:
        raise InputError("the classes are not bound to the pool of the key. Make the key with Key.create.")


def _pool_leaves(key: Key, digests: Sequence[str]) -> list[bytes]:
    return set_leaves(key.secret, digests, None)


def claim_carriers(about: Mapping[str, Any], key: Key, carriers: Any) -> Data:
    """Return the images that a claim is made on; refuse others than those set aside, if any were."""
    data = _set_aside(key, carriers) if about["carriers"] == SET_ASIDE else as_data(carriers, classes=key.classes)
    key.check_fits(data)
    return data


def open_marks(about: Mapping[str, Any], key: Key, data: Data, numbers: Sequence[int]) -> Opening:
    """Return what a claim opens.

    Args:
        about: The statement's codebook.
        key: The committed key.
        data: The images set aside, or those that the auditor brought (:func:`claim_carriers`).
        numbers: Of the opened marks.
    """
    marks, bound = key.marks or 0, about["carriers"] == SET_ASIDE
    count = len(data) if about["carriers"] != NO_CARRIERS else about["count"]
    each = asked_each(about, marks, count)
    whole = key.samples(data, purpose="verify", count=each * marks)
    samples = whole.subset(torch.cat([torch.arange(number * each, (number + 1) * each) for number in numbers]))
    seeds = [mark_seed(key.secret, number) for number in numbers]
    paths = audit_paths(mark_leaves(key), numbers)
    opened = [
        {"index": number, "seed": seed.hex(), "path": [one.hex() for one in path]}
        for number, seed, path in zip(numbers, seeds, paths, strict=True)
    ]
    if about["carriers"] != NO_CARRIERS:
        rows = whole.carriers[:each]
        held, true = data.gather(rows).images.cpu(), data.labels.cpu()[rows]
        entries = _entries(key, data if bound else None, rows.tolist(), held, true.tolist())
    elif key.pool is not None:
        size = key.pool.shape[1]
        places = [row for number, seed in zip(numbers, seeds, strict=True)
                  for row in pool_rows(seed, number, size, each)]  # fmt: skip
        held = samples.images
        entries = _entries(key, key.pool.flatten(0, 1), places, held, [None] * len(places))
    else:
        held, entries = None, []
    shown = {
        "class_key": class_key(key.secret).hex(), "choice_key": choice_key(key.secret).hex(), "count": count,
        "images": entries,
    }  # fmt: skip
    return Opening(samples=samples, drawn=key.codebook().classes[list(numbers)], opened=opened, shown=shown,
                   images=held)  # fmt: skip


def _entries(
    key: Key, tree: Data | Tensor | None, rows: Sequence[int], held: Tensor, true: Sequence[int | None]
) -> list[dict[str, Any]]:
    """Return the shown images as JSON values, with salts and paths in ``tree``; without both if it is None."""
    salts: Sequence[str | None] = [None] * len(rows)
    paths: Sequence[list[bytes]] = [[] for _ in rows]
    if tree is not None:
        if isinstance(tree, Tensor):
            images, labels = tree, None
        else:
            every = tree.gather(torch.arange(len(tree)))
            images, labels = every.images.cpu(), every.labels.cpu()
        hidden = sample_salts(key.secret, len(images))
        salts = [hidden[row].hex() for row in rows]
        paths = audit_paths(set_leaves(key.secret, image_digests(images), labels), rows)
    return [
        {"row": row, "image": image, "true": own, "salt": salt, "path": [one.hex() for one in path]}
        for row, image, own, salt, path in zip(rows, image_digests(held), true, salts, paths, strict=True)
    ]  # fmt: skip
