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
from typing import Any

import torch
from torch import Tensor

from indelible.base.errors import InputError
from indelible.base.merkle import tree_root
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import Data
from indelible.evidence.codebook_checks import AUDITOR, NO_CARRIERS, SET_ASIDE, asked_each, pool_rows
from indelible.evidence.opening import Questions, hex_paths
from indelible.keys.codebook import choice_key, class_key, mark_leaves, mark_seed, most_carriers
from indelible.keys.key import Key
from indelible.keys.labels import sample_salts, set_leaves


def codebook_statement(key: Key, carriers: Any, samples: int | None) -> dict[str, Any]:
    """Return what a commitment says of a codebook beside its marks; ``samples`` is of all marks together."""
    marks = key.marks or 0
    each = most_carriers(key.shape, marks) if samples is None else samples // marks
    if each < 1:
        raise InputError(f"a codebook of {marks} marks asks every mark: at least {marks} samples, got {samples}.")
    source, count = AUDITOR, None
    if key.kind == "unrelated":
        source, count = NO_CARRIERS, None if key.pool is None else math.prod(key.pool.shape[:2])
        if key.pool is not None and tree_root(_leaves(key, key.pool.flatten(0, 1), None)).hex() != key.bound:
            raise InputError("the classes are not bound to the pool of the key. Make the key with Key.create.")
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


def _leaves(key: Key, images: Tensor, labels: Tensor | None) -> list[bytes]:
    return set_leaves(key.secret, image_digests(images), labels)


def claim_carriers(about: Mapping[str, Any], key: Key, carriers: Any) -> Data:
    """Return the images that a claim is made on; refuse others than those set aside, if any were."""
    data = _set_aside(key, carriers) if about["carriers"] == SET_ASIDE else as_data(carriers, classes=key.classes)
    key.check_fits(data)
    return data


def open_marks(
    about: Mapping[str, Any], key: Key, data: Data, numbers: Sequence[int]
) -> tuple[Questions, dict[str, Any], dict[str, Tensor]]:
    """Open the marks ``numbers`` on the images of :func:`claim_carriers`.

    Returns what is asked, what the claim shows of it, and the images of the bundle.
    """
    marks, bound = key.marks or 0, about["carriers"] == SET_ASIDE
    count = len(data) if about["carriers"] != NO_CARRIERS else about["count"]
    each = asked_each(about, marks, count)
    whole = key.samples(data, purpose="verify", count=each * marks)
    samples = whole.subset(torch.cat([torch.arange(number * each, (number + 1) * each) for number in numbers]))
    seeds = [mark_seed(key.secret, number) for number in numbers]
    paths = hex_paths(mark_leaves(key.secret, marks), numbers)
    opened = [
        {"index": number, "seed": seed.hex(), "path": path}
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
    own = None if samples.true is None else samples.true[:each]
    questions = Questions(samples=samples.images, labels=key.codebook().classes[list(numbers)], true=own)
    return questions, {"opened": opened, "codebook": shown}, {} if held is None else {"images": held}


def _entries(
    key: Key, tree: Data | Tensor | None, rows: Sequence[int], held: Tensor, true: Sequence[int | None]
) -> list[dict[str, Any]]:
    """Return the shown images as JSON values, with salts and paths in ``tree``; without both if it is None."""
    salts: Sequence[str | None] = [None] * len(rows)
    paths: Sequence[list[str]] = [[] for _ in rows]
    if tree is not None:
        if isinstance(tree, Tensor):
            images, labels = tree, None
        else:
            every = tree.gather(torch.arange(len(tree)))
            images, labels = every.images.cpu(), every.labels.cpu()
        hidden = sample_salts(key.secret, len(images))
        salts = [hidden[row].hex() for row in rows]
        paths = hex_paths(_leaves(key, images, labels), rows)
    return [
        {"row": row, "image": image, "true": own, "salt": salt, "path": path}
        for row, image, own, salt, path in zip(rows, image_digests(held), true, salts, paths, strict=True)
    ]  # fmt: skip
