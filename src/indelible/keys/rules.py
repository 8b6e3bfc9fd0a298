"""Validate key settings: the allowed names, and which of them go together."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from indelible.base.checks import check_key_numbers, is_hash
from indelible.base.errors import InputError, UnknownNameError
from indelible.keys.derive import check_secret
from indelible.keys.marks import MARKS

if TYPE_CHECKING:
    from indelible.keys.key import Key

Scheme = Literal["derived", "paper"]
Labels = Literal["codebook", "fixed", "keyed", "untargeted", "stored"]
# Beside the kinds of marks: no mark, for keyed labels only; and what a method makes.
_UNMARKED = ("plain", "fingerprint")
SCHEMES: tuple[Scheme, ...] = ("derived", "paper")
LABELS: tuple[Labels, ...] = ("codebook", "fixed", "keyed", "untargeted")
SINGLE: tuple[Labels, ...] = ("fixed", "untargeted")
"""Labels of keys with one mark for all samples."""
FRESH: tuple[Labels, ...] = ("codebook", *SINGLE)
"""Labels that carry over to images that were not embedded: a model is asked fresh samples."""
# Of the format of a key. Version 1 drew keyed labels by digests without salts, which an auditor could not be shown, and
# the classes of a codebook without its marks, which could then be sought one by one.
VERSIONS: Mapping[Labels, int] = {"codebook": 2, "fixed": 1, "keyed": 2, "untargeted": 1, "stored": 1}
# Far beyond what is of use; a damaged file asks for no more memory than there is.
_LARGEST = 1 << 26
_STRONGEST = 10.0
_MOST_MARKS = 1024


def check_key(key: "Key") -> None:
    """Refuse settings that make no key; what is wrong, and what to do."""
    check_secret(key.secret)
    check_key_numbers(key)
    if key.kind not in _UNMARKED and key.kind not in MARKS:
        raise UnknownNameError("kind of mark", str(key.kind), (*MARKS, "plain"))
    if key.scheme not in SCHEMES:
        raise UnknownNameError("key scheme", key.scheme, SCHEMES)
    if key.classes < 2:
        raise InputError(f"a key needs at least 2 classes, got {key.classes}.")
    _check_labels(key)
    if len(key.shape) != 3 or min(key.shape) < 1 or math.prod(key.shape) > _LARGEST:
        raise InputError(
            f"a key's shape is (channels, height, width), {_LARGEST} numbers at most, got {key.shape!s:.80}."
        )
    if not 0.0 <= key.transparency < 1.0:
        raise InputError(f"transparency must lie in [0, 1), got {key.transparency}: at 1 there is no mark.")
    if key.size <= 0.0 or not 0.0 < key.strength <= _STRONGEST:
        raise InputError(f"size must be positive and strength in (0, {_STRONGEST:g}], got {key.size}, {key.strength}.")


def _check_labels(key: "Key") -> None:
    if _is_fingerprint(key):
        return
    if key.labels not in LABELS:
        raise UnknownNameError("kind of labels", key.labels, LABELS)
    if key.kind == "plain" and key.labels != "keyed":
        raise InputError(f"kind='plain' (no mark) needs labels='keyed', got labels={key.labels!r}.")
    if key.count is not None and key.count < 1:
        raise InputError(f"a key needs at least one sample, got count={key.count}.")
    if key.labels != "codebook" and (key.marks is not None or key.bound is not None):
        raise InputError(
            f"several marks, and carriers set aside, are for labels='codebook', got labels={key.labels!r}. Leave out "
            "marks and carriers, or leave out target and labels to make a codebook."
        )
    if key.labels == "codebook":
        _check_codebook(key)
    elif key.labels == "fixed":
        if key.target is None or not 0 <= key.target < key.classes:
            raise InputError(f"the target must be a class 0..{key.classes - 1}, got {key.target}.")
    elif key.labels == "untargeted":
        _check_untargeted(key)
    else:
        _check_keyed(key)


def _check_codebook(key: "Key") -> None:
    if key.target is not None or key.count is not None or key.scheme == "paper":
        raise InputError(
            "a codebook draws a class for every mark and stamps ordinary images: it takes no target, no count and not "
            "the paper's scheme. For the paper's single class use labels='fixed', or give target= or scheme='paper'."
        )
    if key.marks is None or not 2 <= key.marks <= _MOST_MARKS:
        raise InputError(f"a codebook has 2 to {_MOST_MARKS} marks, got {key.marks}. Leave out marks for the default.")
    if key.pool is not None and (key.pool.ndim != 5 or len(key.pool) != key.marks):
        raise InputError(
            f"a codebook of {key.marks} unrelated marks needs as many groups of images, got {tuple(key.pool.shape)}."
        )
    if key.bound is not None and not is_hash(key.bound):
        raise InputError("the root of the carriers is 64 hexadecimal digits: make the key with Key.create.")


def _check_keyed(key: "Key") -> None:
    if key.target is not None or key.count is None:
        raise InputError(
            f"keyed labels need a count of samples and no target class, got target={key.target} and "
            f"count={key.count}. Leave the target out."
        )
    if key.scheme == "paper":
        raise InputError("the paper labels all samples as one class: use labels='fixed' with scheme='paper'.")
    if key.classes < 3:
        raise InputError("keyed labels need 3 classes or more: of 2, only one is not an image's true class.")


def _check_untargeted(key: "Key") -> None:
    if key.target is not None:
        raise InputError(f"untargeted samples have no target class, got target={key.target}. Leave it out.")
    if key.kind == "unrelated":
        raise InputError(
            "untargeted samples are to be answered with another class than their own, but unrelated images have "
            "none. Use the kind 'content' or 'noise'."
        )


def _is_fingerprint(key: "Key") -> bool:
    stored = [key.kind == "fingerprint", key.labels == "stored", key.fingerprint is not None]
    if any(stored) and (not all(stored) or key.target is not None):
        raise InputError(
            "a fingerprint is a key of its own kind, with stored queries and without a target class. It is made by "
            "a method that finds the queries: embed(..., method='cae')."
        )
    return all(stored)
