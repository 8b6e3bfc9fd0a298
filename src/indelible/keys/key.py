"""The key: what marks samples, what they are labelled, and a digest that names it without giving it away.

A key is a frozen value. Its secret decides every choice (see :mod:`indelible.keys.derive`) and appears in no ``repr``,
log, record or report.

| labels | what a sample is labelled as |
|---|---|
| ``codebook`` | the class of its mark, one of several (:mod:`indelible.keys.codebook`): exact for any model |
| ``fixed`` | one target class, as in the paper |
| ``keyed`` | a pseudo-random class of its own (:mod:`indelible.keys.labels`), which can only be learnt by heart |
| ``untargeted`` | its true class, and a hit is any other: how NTL proves ownership (docs/methods/ntl.md) |
| ``stored`` | what a search found (:class:`indelible.keys.samples.Fingerprint`) |

``scheme="paper"`` switches to the literal settings of the paper (``TEST``, one fixed noise, class 0). They serve to
reproduce its tables; since anybody could have used them, a match with such a key carries no weight against forgery.

``kind="plain"`` has no mark: key images are ordinary images of the task ("in-task" images of Kallas and Furon, "ROSE: A
RObust and SEcure Black-Box DNN Watermarking", WIFS 2022), and only their keyed labels are not.

On disk a key is a folder with ``key.json`` (public, with the digest) and ``secret.key`` (mode 0600). Some have
``pool.safetensors`` (images of an unrelated mark) or ``fingerprint.safetensors`` (stored queries) too. A key that was
altered, or put together from parts of two keys, is refused on loading.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from indelible.base.checks import key_numbers
from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import canonical_json, read_json, read_tensors, write_json, write_tensors, write_text
from indelible.base.merkle import tree_root
from indelible.data.convert import as_data
from indelible.data.digests import image_digests
from indelible.data.images import Data, Shape
from indelible.keys.codebook import (
    Codebook,
    bound_leaves,
    class_key,
    default_marks,
    drawn_classes,
    mark_seed,
    marks_root,
)
from indelible.keys.derive import SECRET_BYTES, Choices, check_secret, expand, new_secret
from indelible.keys.labels import keyed_labels
from indelible.keys.marks import MARKS, Mark, PlainMark, Purpose, seeded_mark
from indelible.keys.rules import FRESH, SCHEMES, SINGLE, VERSIONS, Labels, Scheme, check_key
from indelible.keys.samples import Fingerprint, WatermarkSamples
from indelible.keys.unrelated import family_pool, single_pool

__all__ = ["FRESH", "SCHEMES", "SINGLE", "Key", "Labels", "WatermarkSamples"]

_PUBLIC, _SECRET, _POOL, _FINGERPRINT = "key.json", "secret.key", "pool.safetensors", "fingerprint.safetensors"
_PAPER_TARGET = 0
_KEYED_COUNT = 100
_VERIFY_GENERATED = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Key:
    """A watermark key; make one with :meth:`create`, which explains the settings.

    Attributes:
        target: The class that marked images are labelled as; None with other than fixed labels.
        marks: K, marks of a codebook; None for other labels.
        bound: Root (hexadecimal) of the carriers that a codebook's classes are bound to; None if they are free.
        pool: uint8 (N, C, H, W): the second data set of an unrelated mark, in a codebook (K, N, C, H, W); None to
            generate images.
        fingerprint: Stored queries, of ``kind="fingerprint"`` only.
        secret: 32 bytes, in no ``repr``.
    """

    kind: str
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
        # A mark that does not fit is refused here, not in the middle of a run.
        _ = self.codebook() if self.labels == "codebook" else self.mark()

    @classmethod
    def create(
        cls,
        *,
        kind: str = "content",
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
            kind: What a mark is: ``"content"``, a text on the image; ``"noise"``, a pattern on it; ``"unrelated"``,
                images of another domain; or a registered one (:mod:`indelible.keys.marks`). ``"plain"`` for none, with
                keyed labels.
            classes: Number of classes of the task.
            shape: (C, H, W) of the images.
            target: One class for all marked images, as in the paper, instead of a codebook.
            labels: By default ``"codebook"``, or ``"fixed"`` with a target or the paper's scheme. ``"fixed"`` without a
                target lets the secret choose it (``scheme="paper"``: class 0). ``"keyed"`` gives each sample a
                pseudo-random class: no class for an attacker to find, but harder to embed and to keep.
                ``"untargeted"`` asks for a wrong answer to marked images, whichever it is: what NTL embeds.
            marks: Marks of a codebook; by default 16, more for two or three classes, fewer for more than ten.
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
            raise InputError(f"a second data set is for unrelated marks only, got kind={kind!r}.")
        hidden = new_secret() if secret is None else check_secret(secret)
        if labels is None:
            labels = "codebook" if target is None and scheme == "derived" and kind in MARKS else "fixed"
        if scheme == "paper" and kind == "unrelated" and source is None:
            raise InputError(
                "the paper's unrelated mark is SVHN's digit 0: give source=<that data set> and source_class=0, "
                "or use scheme='derived' to generate images."
            )
        if carriers is not None and (labels != "codebook" or kind == "unrelated"):
            raise InputError(
                "carriers are set aside for a codebook, and unrelated images are not drawn on carriers, got "
                f"labels={labels!r} and kind={kind!r}. Leave them out."
            )
        pool, bound = None, None
        found = None if source is None else source.gather(torch.arange(len(source)))
        if labels == "codebook":
            if found is not None:
                pool = family_pool(found, shape, source_class, marks or default_marks(classes))
                marks = len(pool)
            marks = default_marks(classes) if marks is None else marks
            given = pool if carriers is None else as_data(carriers, classes=classes)
            bound = None if given is None else tree_root(bound_leaves(hidden, given)).hex()
        elif found is not None:
            pool = single_pool(found, shape, source_class)
        if labels == "keyed":
            count = _KEYED_COUNT if count is None else count
        elif labels == "fixed" and target is None:
            target = _PAPER_TARGET if scheme == "paper" else Choices(hidden, "target").below(classes)
        return cls(
            kind=kind, classes=classes, shape=shape, target=target, labels=labels, marks=marks, bound=bound,
            count=count, scheme=scheme, size=size, transparency=transparency, strength=strength, pool=pool,
            secret=hidden,
        )  # fmt: skip

    @classmethod
    def of(cls, public: Mapping[str, Any], secret: bytes, **parts: Any) -> Self:
        """Rebuild a key from :meth:`public`, its secret, and what its settings do not hold."""
        names = {one.name for one in fields(cls)} - {"pool", "fingerprint", "secret"}
        given = {name: value for name, value in public.items() if name in names}
        return cls(**{**given, "shape": tuple(given["shape"]), **parts}, secret=secret)

    def public(self) -> Mapping[str, Any]:
        """Return all settings but the secret and the pool, as JSON values."""
        # Some settings appear only where they are used: the digest of a key is that of its first version.
        return {
            **({} if self.labels == "fixed" else {"labels": self.labels}),
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

    def mark(self) -> Mark:
        """Return the mark as a value that can be looked at and applied; a codebook has several."""
        if self.labels == "codebook":
            raise InputError("this takes a key with one mark, and a codebook has several: see Key.codebook().")
        if self.kind in {"plain", "fingerprint"}:
            return PlainMark()
        settings = {
            "size": self.size, "transparency": self.transparency, "strength": self.strength, "pool": self.pool
        }  # fmt: skip
        build: type[Mark] = MARKS[self.kind].build
        if self.scheme == "paper" and not build.own_images:  # the paper's own images are a pool that a secret orders
            return build.literal(self.shape, **settings)
        return build.derived(self.secret, self.shape, **settings)

    def codebook(self) -> Codebook:
        """Return the marks of a codebook and their classes."""
        if self.labels != "codebook" or self.marks is None:
            raise InputError(f"this takes a codebook, and the key has {self.labels} labels. Make one with Key.create.")
        root = marks_root(self.secret, self.marks) + bytes.fromhex(self.bound or "")
        drawn = drawn_classes(class_key(self.secret), root, classes=self.classes, marks=self.marks)
        pools = [None] * self.marks if self.pool is None else list(self.pool)
        seeds = [mark_seed(self.secret, number) for number in range(self.marks)]
        marks = [seeded_mark(seed, vars(self), pool) for seed, pool in zip(seeds, pools, strict=True)]
        return Codebook(tuple(marks), drawn)

    def is_bound_to(self, carriers: Data) -> bool:
        """Tell whether these are the carriers that the codebook's classes are bound to."""
        return self.bound is not None and tree_root(bound_leaves(self.secret, carriers)).hex() == self.bound

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
            return self.codebook().samples(self.secret, carriers, purpose, count)
        eligible = torch.arange(len(carriers))
        if self.target is not None:
            eligible = (carriers.labels != self.target).nonzero().flatten().cpu()
        mark = self.mark()
        if count is None and purpose == "embed":
            count = self.count
        if count is None:
            count = len(eligible)
            if mark.own_images:
                count = min(count, mark.capacity(purpose) or _VERIFY_GENERATED)
        if not 0 < count <= len(eligible):
            which = "" if self.target is None else f" that are not of the target class {self.target}"
            raise InputError(
                f"{carriers.name!r} has {len(eligible)} images{which}, too few for {count} watermark samples. "
                "Give more carriers, or ask for fewer samples."
            )
        order = torch.from_numpy(Choices(self.secret, f"carriers/{purpose}").permutation(len(eligible)))
        chosen = eligible[order[:count]].sort().values
        plain, true = None, None
        if not mark.own_images:
            plain, true = carriers.gather(chosen).images.cpu(), carriers.labels.cpu()[chosen]
        images = mark.samples(plain, count, purpose)
        return WatermarkSamples(images, self.label(images, true), chosen, true, self.labels == "untargeted")

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
                raise InputError("untargeted samples keep their true classes as labels, got none.")
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

        They are fresh samples on ``test``; with keyed labels, which do not carry over to other images, those embedded
        in ``owner``'s images; of a fingerprint, its stored ones.
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
        secret = expand(self.secret, f"decoy/{number}")
        return replace(self, scheme="derived", bound=None, pool=None, fingerprint=None, secret=secret)

    def save(self, folder: str | Path) -> Path:
        """Write the key into ``folder``; a different key that is there already is not overwritten.

        A fingerprint takes the place of the key with whose secret it was begun.
        """
        place = Path(folder)
        if (place / _PUBLIC).exists() and (there := Key.load(place)) != self:
            begun = self.fingerprint is not None and there.pool is None
            if not (begun and hmac.compare_digest(self.secret, there.secret)):
                raise InputError(
                    f"{place} holds another key already. Choose another folder: a lost key cannot be made again."
                )
        # The public file is written last: a folder without it is not a key, so a broken save leaves nothing half-valid.
        write_text(place / _SECRET, self.secret.hex() + "\n", mode=0o600)
        if self.pool is not None:
            write_tensors(place / _POOL, {"pool": self.pool})
        if self.fingerprint is not None:
            self.fingerprint.save(place / _FINGERPRINT)
        write_json(place / _PUBLIC, {**self.public(), "digest": self.digest})
        return place

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a key from ``folder`` and check it against its digest."""
        place = Path(folder)
        if not (place / _PUBLIC).is_file():
            raise DamagedFileError(f"{place} is not a key: it has no {_PUBLIC}. Make one with `indelible key create`.")
        public = read_json(place / _PUBLIC)
        if not isinstance(public, dict):
            raise DamagedFileError(f"{place / _PUBLIC} is not a key: no JSON object. Restore it from a copy.")
        try:
            version, labels = public["version"], public.get("labels", "fixed")
            if version != VERSIONS.get(labels):
                raise DamagedFileError(
                    f"{place} holds a key of version {version} with {labels!s:.20} labels, this package reads version "
                    f"{VERSIONS.get(labels)} of them. Use the package that made it, or make a new key and embed that."
                )
            pool = None if public["pool"] is None else read_tensors(place / _POOL)[0]["pool"]
            stored = Fingerprint.load(place / _FINGERPRINT) if "fingerprint" in public else None
            key = cls.of(public, _read_secret(place / _SECRET), pool=pool, fingerprint=stored)
            intact = hmac.compare_digest(str(public.pop("digest")), key.digest) and public == key.public()
        except (KeyError, TypeError, ValueError, OverflowError, InputError) as error:
            raise DamagedFileError(f"{place / _PUBLIC} is not a key that this version reads ({error}).") from error
        if not intact:
            raise DamagedFileError(
                f"the key in {place} does not match its digest: a file was altered or belongs to another key. "
                "Restore the whole folder from a copy."
            )
        return key


def _read_secret(path: Path) -> bytes:
    try:
        return check_secret(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path} is missing: without its secret a key cannot be used. Restore it.") from error
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path} is not a secret of {SECRET_BYTES} bytes in hexadecimal.") from error
