"""The key: what marks samples, what they are labelled, and a digest that names it without giving it away.

A key is a frozen value. Its secret decides every choice (see :mod:`indelible.keys.derive`) and appears in no ``repr``,
log, record or report.

``labels="codebook"``, the default, has several marks, each with a class that the secret draws
(:mod:`indelible.keys.codebook`). The proof is exact for any model, and needs few hits.

``labels="fixed"`` is the paper's: one mark, one target class. ``target=`` and ``scheme="paper"`` choose it.

``scheme="paper"`` switches to the literal settings of the paper (``TEST``, one fixed noise, class 0). They serve to
reproduce its tables; since anybody could have used them, a match with such a key carries no weight against forgery.

``labels="keyed"`` gives every sample a pseudo-random label (:mod:`indelible.keys.labels`) in place of one target class.
Such labels can only be learnt by heart, so that a model is asked the embedded samples themselves, not fresh ones.

``labels="untargeted"`` has no class at all: a sample is a hit when it is *not* answered with its true class, so that
the WSR is the error rate on marked images. That is how NTL proves ownership (:mod:`indelible.embed.ntl`).

``labels="stored"`` is a fingerprint's (:mod:`indelible.keys.fingerprint`): queries and labels were found by search
and are kept with the key.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from indelible.base.checks import key_numbers
from indelible.base.errors import InputError
from indelible.base.files import canonical_json
from indelible.base.merkle import tree_root
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import Data, Shape
from indelible.keys.codebook import (
    Codebook,
    Mark,
    chosen_rows,
    class_key,
    default_marks,
    drawn_classes,
    mark_seed,
    marks_root,
    most_carriers,
    seeded_mark,
)
from indelible.keys.content import ContentMark
from indelible.keys.derive import Choices, check_secret, expand, new_secret
from indelible.keys.fingerprint import Fingerprint
from indelible.keys.labels import carriers_root, keyed_labels, set_leaves
from indelible.keys.noise import NoiseMark
from indelible.keys.plain import PlainMark
from indelible.keys.rules import FRESH, KINDS, LABELS, SCHEMES, SINGLE, VERSIONS, Kind, Labels, Scheme, check_key
from indelible.keys.samples import WatermarkSamples
from indelible.keys.unrelated import Purpose, UnrelatedMark, family_pool

__all__ = [
    "FRESH",
    "KINDS",
    "LABELS",
    "SCHEMES",
    "SINGLE",
    "VERSIONS",
    "Key",
    "Kind",
    "Labels",
    "Scheme",
    "WatermarkSamples",
]

_PAPER_TARGET = 0
_KEYED_COUNT = 100
_VERIFY_GENERATED = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Key:
    """A watermark key; make one with :meth:`create`.

    Attributes:
        kind: ``"content"``, ``"noise"``, ``"unrelated"``, ``"plain"`` (no mark) or ``"fingerprint"``.
        classes: Number of classes of the task.
        shape: (C, H, W) of the images.
        target: The class that marked images are labelled as; None with other than fixed labels.
        labels: ``"codebook"``: each mark has a class. ``"fixed"``: all get the target. ``"keyed"``: each sample gets a
            pseudo-random class, never its true one. ``"untargeted"``: each keeps its true class, and is to be answered
            with any other. ``"stored"``: those of the fingerprint.
        marks: K, marks of a codebook; None for other labels.
        bound: Root (hexadecimal) of the carriers that a codebook's classes are bound to; None if they are free.
        count: Samples to embed; None leaves it to the ``fraction`` of the embedding method (fixed labels only).
        scheme: ``"derived"``: every choice from the secret. ``"paper"``: the paper's literal settings.
        size: Relative size of a content mark.
        transparency: Of a content mark; 0 is opaque.
        strength: Standard deviation of a noise mark.
        pool: uint8 (N, C, H, W): the second data set of an unrelated mark, in a codebook (K, N, C, H, W); None to
            generate images.
        fingerprint: Queries of a fingerprint, and only of one.
        secret: 32 bytes, in no ``repr``.
    """

    kind: Kind
    classes: int
    shape: Shape
    target: int | None
    labels: Labels = "fixed"
    marks: int | None = None
    bound: str | None = None
    count: int | None = None
    scheme: Scheme = "derived"
    size: float = 1.0
    transparency: float = 0.0
    strength: float = 0.1
    pool: Tensor | None = field(default=None, repr=False)
    fingerprint: Fingerprint | None = field(default=None, repr=False)
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_key(self)
        _ = (
            self.codebook() if self.labels == "codebook" else self.mark()
        )  # a mark that does not fit is refused here, not in the middle of a run

    @classmethod
    def create(
        cls,
        *,
        kind: Kind = "content",
        classes: int,
        shape: Shape,
        target: int | None = None,
        labels: Labels | None = None,
        marks: int | None = None,
        carriers: Any = None,
        count: int | None = None,
        scheme: Scheme = "derived",
        size: float = 1.0,
        transparency: float = 0.0,
        strength: float = 0.1,
        source: Data | None = None,
        source_class: int | None = None,
        secret: bytes | None = None,
    ) -> Self:
        """Make a key.

        Args:
            kind: What a mark is: text on the image, noise on the image, or images of another domain; ``"plain"`` for
                none, with keyed labels.
            classes: Number of classes of the task.
            shape: (C, H, W) of the images.
            target: One class for all marked images, as in the paper, instead of a codebook.
            labels: By default ``"codebook"``, or ``"fixed"`` with a target or the paper's scheme. ``"fixed"`` without a
                target lets the secret choose it (``scheme="paper"``: class 0). ``"keyed"`` gives each sample a
                pseudo-random class instead of one target: no class for an attacker to find, and a test that is exact
                for any model. It is learnt by heart: harder to embed and to keep.
                ``"untargeted"`` asks for a wrong answer to marked images, whichever it is: what NTL embeds.
            marks: Marks of a codebook; by default 16, more for fewer than four classes.
            carriers: Images set aside for verification, test images for example: the classes of a codebook are then
                bound to them, and a claim may use them. Without, an auditor brings the images.
            count: Samples to embed; by default the method's ``fraction`` decides, with keyed labels 100.
            scheme: ``"derived"``, or ``"paper"`` for the paper's literal marks.
            size: Relative size of a content mark; 1 is seven pixels high on 32 x 32.
            transparency: Of a content mark; 0 is opaque.
            strength: Standard deviation of a noise mark, relative to the range of a pixel.
            source: For unrelated marks, a data set of another domain; by default images are generated.
            source_class: Use only this class of ``source`` (the paper: SVHN's digit 0).
            secret: 32 bytes; by default drawn from the operating system.
        """
        classes, shape, target, count = key_numbers(classes=classes, shape=shape, target=target, count=count)
        if source is not None and kind != "unrelated":
            raise InputError(f"a second data set is for unrelated marks only, but the kind is {kind!r}.")
        hidden = new_secret() if secret is None else check_secret(secret)
        if labels is None:
            labels = "codebook" if target is None and scheme == "derived" and kind in KINDS else "fixed"
        if scheme == "paper" and kind == "unrelated" and source is None:
            raise InputError(
                "the paper's unrelated mark is SVHN's digit 0: give source=<that data set> and source_class=0, "
                "or use scheme='derived' to generate images."
            )
        pool, bound = None, None
        found = None if source is None else source.gather(torch.arange(len(source)))
        if labels == "codebook":
            if found is not None:
                pool = family_pool(found, shape, source_class, marks or default_marks(classes))
                marks = len(pool)
            marks = default_marks(classes) if marks is None else marks
            bound = _root(hidden, kind, pool, None if carriers is None else as_data(carriers, classes=classes))
        elif kind == "unrelated":
            pool = UnrelatedMark.from_data(hidden, shape, found, source_class).pool
        if carriers is not None and labels != "codebook":
            raise InputError(f"carriers are set aside for a codebook, got labels={labels!r}. Leave them out.")
        if labels == "keyed":
            count = _KEYED_COUNT if count is None else count
        elif labels == "fixed" and target is None:
            target = _PAPER_TARGET if scheme == "paper" else Choices(hidden, "target").below(classes)
        return cls(
            kind=kind, classes=classes, shape=shape, target=target, labels=labels, marks=marks, bound=bound,
            count=count, scheme=scheme, size=size, transparency=transparency, strength=strength, pool=pool,
            secret=hidden,
        )  # fmt: skip

    def public(self) -> Mapping[str, Any]:
        """Return all settings but the secret and the pool, as JSON values."""
        # Later settings appear where they are used only: keys made before they existed keep their digests.
        later = {"labels": self.labels} if self.labels != "fixed" else {}
        return {
            **later,
            **({} if self.marks is None else {"marks": self.marks, "bound": self.bound}),
            **({} if self.count is None else {"count": self.count}),
            **({} if self.fingerprint is None else {"fingerprint": self.fingerprint.digest()}),
            "version": VERSIONS[self.labels],
            "scheme": self.scheme,
            "kind": self.kind,
            "classes": self.classes,
            "shape": list(self.shape),
            "target": self.target,
            "size": self.size,
            "transparency": self.transparency,
            "strength": self.strength,
            "pool": None if self.pool is None else hashlib.sha256(self.pool.contiguous().numpy().data).hexdigest(),
        }

    @property
    def digest(self) -> str:
        """Hexadecimal name of the key; it binds settings, pool and secret, and reveals nothing of the secret."""
        return hmac.new(expand(self.secret, "digest"), canonical_json(self.public()), "sha256").hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and hmac.compare_digest(self.digest, other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def mark(self) -> ContentMark | NoiseMark | PlainMark | UnrelatedMark:
        """Return the mark as a value that can be looked at and applied; a codebook has several."""
        if self.labels == "codebook":
            raise InputError("this takes a key with one mark, and a codebook has several: see Key.codebook().")
        if self.kind in {"plain", "fingerprint"}:
            return PlainMark(shape=self.shape)
        literal = self.scheme == "paper"
        if self.kind == "content":
            settings = {"size": self.size, "transparency": self.transparency}
            if literal:
                return ContentMark.literal(self.shape, **settings)
            return ContentMark.derived(self.secret, self.shape, **settings)
        if self.kind == "noise":
            if literal:
                return NoiseMark.literal(self.shape, strength=self.strength)
            return NoiseMark.derived(self.secret, self.shape, strength=self.strength)
        return UnrelatedMark(secret=self.secret, shape=self.shape, pool=self.pool)

    def codebook(self) -> Codebook:
        """Return the marks of a codebook and their classes."""
        if self.labels != "codebook" or self.marks is None:
            raise InputError(f"this takes a codebook, and the key has {self.labels} labels. Make one with Key.create.")
        root = marks_root(self.secret, self.marks) + bytes.fromhex(self.bound or "")
        drawn = drawn_classes(class_key(self.secret), root, classes=self.classes, marks=self.marks)
        return Codebook(tuple(self._numbered(number) for number in range(self.marks)), drawn)

    def _numbered(self, number: int) -> Mark:
        return seeded_mark(
            mark_seed(self.secret, number), kind=self.kind, shape=self.shape, size=self.size,
            transparency=self.transparency, strength=self.strength,
            pool=None if self.pool is None else self.pool[number],
        )  # fmt: skip

    def is_bound_to(self, carriers: Data) -> bool:
        """Tell whether these are the carriers that the codebook's classes are bound to."""
        return self.bound is not None and carriers_root(self.secret, carriers).hex() == self.bound

    def check_fits(self, data: Data) -> None:
        """Refuse data of another shape or number of classes."""
        if data.shape != self.shape or len(data.classes) != self.classes:
            raise InputError(
                f"the key was made for {self.classes} classes of images {self.shape}, but {data.name!r} has "
                f"{len(data.classes)} classes of images {data.shape}. Use the key's own data, or make another key."
            )

    def samples(self, carriers: Data, *, purpose: Purpose, count: int | None = None) -> WatermarkSamples:
        """Return watermark samples on ``carriers``.

        Args:
            carriers: Images that content and noise are drawn on; none of the target class is used.
            purpose: ``"embed"`` or ``"verify"``; unrelated samples of the two never coincide.
            count: How many; by default the key's own count to embed, else all that can be had (1,000 of a generated
                family). Keyed labels belong to the whole set: another count is another set with other labels. A
                codebook draws every mark on the same carriers, 200 if there are as many: a count is a multiple of K.
        """
        self.check_fits(carriers)
        if self.fingerprint is not None:
            raise InputError("a fingerprint's queries are stored, not drawn on carriers: they are in key.fingerprint.")
        if self.labels == "codebook":
            return self._stamped(carriers, purpose, count)
        eligible = torch.arange(len(carriers)) if self.target is None else _others(carriers, self.target)
        mark = self.mark()
        if count is None and purpose == "embed":
            count = self.count
        if count is None:
            room = mark.capacity(purpose) if isinstance(mark, UnrelatedMark) else None
            wanted = room or _VERIFY_GENERATED if isinstance(mark, UnrelatedMark) else len(eligible)
            count = min(wanted, len(eligible))
        if not 0 < count <= len(eligible):
            which = "" if self.target is None else f" that are not of the target class {self.target}"
            raise InputError(
                f"{count} watermark samples are wanted, but {carriers.name!r} has {len(eligible)} images{which}. "
                "Give more carriers, or ask for fewer samples."
            )
        order = torch.from_numpy(Choices(self.secret, f"carriers/{purpose}").permutation(len(eligible)))
        chosen = eligible[order[:count]].sort().values
        true = None if isinstance(mark, UnrelatedMark) else carriers.labels.cpu()[chosen]
        if isinstance(mark, UnrelatedMark):
            images = mark.draw(count, purpose)
        else:
            images = mark.apply(carriers.gather(chosen).images.cpu())
        return WatermarkSamples(images, self.label(images, true), chosen, true, self.labels == "untargeted")

    def _stamped(self, carriers: Data, purpose: Purpose, count: int | None) -> WatermarkSamples:
        book = self.codebook()
        most = most_carriers(self.shape, len(book))
        room = [len(carriers)] if self.kind != "unrelated" else [
            mark.capacity(purpose) or most for mark in book.marks if isinstance(mark, UnrelatedMark)
        ]  # fmt: skip
        each = min(most, *room) if count is None else count // len(book)
        if each < 1 or each > min(room):
            raise InputError(
                f"a codebook of {len(book)} marks asks every mark on the same carriers: a number of samples from "
                f"{len(book)} to {len(book) * min(room)} is possible here, got {count or 0}."
            )
        rows = chosen_rows(Choices(self.secret, f"carriers/{purpose}"), len(carriers), each)
        marks = torch.arange(len(book)).repeat_interleave(each)
        images = book.draw(carriers if self.kind != "unrelated" else None, rows, each, purpose)
        true = None if self.kind == "unrelated" else carriers.labels.cpu()[rows].repeat(len(book))
        return WatermarkSamples(images, book.classes[marks], rows.repeat(len(book)), true, marks=marks)

    def label(self, images: Tensor, true: Tensor | None) -> Tensor:
        """Return the labels (int64, (n,)) of a whole set of marked images, whose true classes are ``true``."""
        if self.fingerprint is not None:
            raise InputError("a fingerprint's labels are stored: nothing says how other images would be labelled.")
        if self.labels == "codebook":
            raise InputError("a codebook's labels depend on which mark an image carries: see Key.samples.")
        if self.target is not None:
            return torch.full((len(images),), self.target, dtype=torch.int64)
        if self.labels == "untargeted":
            if true is None:
                raise InputError("untargeted samples keep their true classes as labels, but none came.")
            return true
        return keyed_labels(self.secret, image_digests(images), true, self.classes)

    @property
    def one_target(self) -> int:
        """The target class, for what only makes sense with one; keyed and untargeted labels are refused."""
        if self.target is None:
            raise InputError(
                f"this needs one target class, but the key has {self.labels} labels. Use a key with a target."
            )
        return self.target

    def questions(self, owner: Data | None, test: Data | None) -> WatermarkSamples:
        """Return the samples that a model is judged by: its WSR is the share of hits among the answers.

        Fixed labels, and untargeted ones: fresh samples on ``test``. Keyed labels are learnt by heart and do not carry
        over to other images: the samples embedded in ``owner``'s images are asked. A fingerprint's own are stored.
        """
        if self.fingerprint is not None:
            return self.fingerprint.samples
        keyed = self.labels == "keyed"
        carriers = owner if keyed else test
        if carriers is None:
            raise InputError(f"{self.labels} labels are asked on {'the owner' if keyed else 'test'} images. Give them.")
        return self.samples(carriers, purpose="embed" if keyed else "verify")

    def choose(self, what: str, size: int, count: int) -> Tensor:
        """Return ``count`` of the numbers 0 .. size - 1, chosen by the secret for ``what``: int64 (count,)."""
        return torch.from_numpy(Choices(self.secret, f"choice/{what}").permutation(size)[:count])

    def decoy(self, number: int) -> "Key":
        """Return a key that no model saw: same settings, another secret, always derived.

        Decoys of an unrelated key generate their images: others of the same pool would be known to a marked model.
        """
        return Key(
            kind=self.kind, classes=self.classes, shape=self.shape, target=self.target, labels=self.labels,
            marks=self.marks, count=self.count, scheme="derived", size=self.size, transparency=self.transparency,
            strength=self.strength, secret=expand(self.secret, f"decoy/{number}"),
        )  # fmt: skip

    def save(self, folder: str | Path) -> Path:
        """Write the key into ``folder``; see :mod:`indelible.keys.store`."""
        from indelible.keys.store import save_key

        return save_key(self, folder)

    @staticmethod
    def load(folder: str | Path) -> "Key":
        """Read a key from ``folder`` and check it against its digest."""
        from indelible.keys.store import load_key

        return load_key(folder)


def _root(secret: bytes, kind: Kind, pool: Tensor | None, carriers: Data | None) -> str | None:
    """Return what the classes of a codebook are bound to: its pool, or the carriers that are set aside."""
    if kind == "unrelated":
        if carriers is not None:
            raise InputError("unrelated images are not drawn on carriers. Leave out carriers.")
        return None if pool is None else tree_root(set_leaves(secret, image_digests(pool.flatten(0, 1)), None)).hex()
    return None if carriers is None else carriers_root(secret, carriers).hex()


def _others(carriers: Data, target: int) -> Tensor:
    return (carriers.labels != target).nonzero().flatten().cpu()
