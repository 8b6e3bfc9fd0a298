"""The commitment: made before release, it fixes what can be claimed later, and reveals nothing.

The statement holds a Merkle root over all samples, or marks of a codebook, the key's settings and digest, test, alpha,
the model's digest, what is committed of labels (:mod:`indelible.evidence.sample_entries`) or codebook
(:mod:`indelible.evidence.codebook_entries`), and the public key that will sign the claim. It is signed, and its hash is
what a timestamp authority sees.

A commitment folder:

| file | what | who sees it |
|---|---|---|
| ``commitment.json``, ``commitment.sig`` | the statement and its signature | in every bundle |
| ``timestamp.tsr``, ``authority.pem`` | the authority's answer, and the roots it was checked with | in every bundle |
| ``identity.pem`` | the signing key, mode 0600 | nobody |
| ``claim-000.json``, ``claim-000.jsonl`` | what was opened in which claim; its query log | nobody |
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from indelible.base.errors import InputError
from indelible.base.files import write_bytes
from indelible.base.merkle import tree_root
from indelible.evidence import codebook_entries, sample_entries
from indelible.evidence.canonical import Hash, canonical, parse_document, require
from indelible.evidence.decision import WITH_DECOYS, test_of
from indelible.evidence.opening import challenge_seed, checked_settings, opened_indices
from indelible.evidence.signing import Identity, is_signed
from indelible.keys.key import Key
from indelible.verification.statistics.codebook_tests import smallest_p_value

STATEMENT, SIGNATURE, IDENTITY = "commitment.json", "commitment.sig", "identity.pem"
_FORMAT = 3
_MOST = 10_000_000  # a check of a foreign bundle ends in time
_FIELDS = {
    "root": Hash, "samples": int, "claims": int, "opens": int, "purpose": str, "key": dict, "key_digest": Hash,
    "test": str, "alpha": float | int, "model": str | None, "owner": str, "public_key": Hash, "created": str,
    "labels": dict | None, "codebook": dict | None, "decoys": Hash | None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Commitment:
    """A statement that was read and checked; ``content`` are its bytes, which are what is signed and stamped.

    ``samples`` is the number of leaves: samples, or marks of a codebook.
    """

    content: bytes
    signature: bytes
    root: str
    samples: int
    claims: int
    opens: int
    purpose: str
    key: Mapping[str, Any]
    key_digest: str
    test: str
    alpha: float
    model: str | None
    owner: str
    public_key: str
    created: str
    labels: Mapping[str, str] | None
    codebook: Mapping[str, Any] | None
    decoys: str | None

    @property
    def repeatable(self) -> bool:
        """Whether every claim asks the same, so that any number of them leaves nothing to choose."""
        return self.claims == 1 and self.opens == self.samples

    @property
    def what(self) -> str:
        """What is committed to and opened."""
        return "samples" if self.codebook is None else "marks"

    @property
    def entries(self) -> ModuleType:
        """The module that checks what a claim shows of the samples, or of the codebook."""
        return sample_entries if self.codebook is None else codebook_entries

    @property
    def digest(self) -> str:
        """SHA-256 of the statement."""
        return hashlib.sha256(self.content).hexdigest()

    def opened(self, challenge: str, number: int) -> list[int]:
        """Return the indices of the samples, or marks, that claim ``number`` opens."""
        seed = challenge_seed(self.digest, challenge)
        return opened_indices(
            seed, self.root, size=self.samples, parts=self.claims, number=number, opens=self.opens
        )  # fmt: skip

    @classmethod
    def of(cls, content: bytes, signature: bytes) -> Self:
        """Read a statement and check its form and signature."""
        found = parse_document(content, STATEMENT, _FORMAT, _FIELDS)
        samples, opens, test = found["samples"], found["opens"], found["test"]
        known = 0 < samples <= _MOST and 0 < found["alpha"] < 1 and test == test_of(found["key"])
        require(known, f"{STATEMENT} commits to no samples or too many, no level alpha, or an unknown test.")
        share = samples // found["claims"] if found["claims"] > 0 else 0
        require(0 < opens <= share, f"{STATEMENT}: its claims cannot open {opens} samples each.")
        sample_entries.check_statement(found, STATEMENT)
        codebook_entries.check_statement(found, checked_settings(found["key"]), STATEMENT)
        fits = (found["decoys"] is not None) == (test in WITH_DECOYS)
        require(fits, f"{STATEMENT}: a test with decoys, and no other, takes the hash of their secrets.")
        signed = is_signed(found["public_key"], "commitment", content, signature)
        require(signed, f"{SIGNATURE} is not the signature of the statement by its public key.")
        return cls(content=content, signature=signature, **{name: found[name] for name in _FIELDS})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read the commitment in a folder."""
        place = Path(folder)
        try:
            return cls.of((place / STATEMENT).read_bytes(), (place / SIGNATURE).read_bytes())
        except OSError as error:
            raise InputError(
                f"{place} holds no commitment ({error.strerror}). Make one with `indelible evidence commit`."
            ) from error


def commit(
    key: Key, carriers: Any, folder: str | Path, *, identity: Identity | None = None, alpha: float = 1e-6,
    samples: int | None = None, claims: int = 1, opens: int | None = None, model: str | None = None, owner: str = "",
) -> Commitment:  # fmt: skip
    """Commit to a key's samples and write the commitment into ``folder``.

    Args:
        key: The owner's key.
        carriers: Images that marks are drawn on: a test set; with keyed labels, the owner's images that were embedded
            in. The same ones are needed for a claim. A codebook takes the images that its classes are bound to; if they
            are bound to none, an auditor brings the carriers to a claim, and these are not looked at.
        folder: Where the commitment goes; one that is there is not overwritten.
        identity: The signing key; by default a new one is made and kept in the folder.
        alpha: Level of a claim; several claims share it.
        samples: How many samples; by default all that the carriers give, of a codebook as many as a verification asks.
        claims: 1, the default: a claim opens everything, asks what :func:`indelible.verify` asks, and may be made again
            against other suspects. More: so many claims may be made; they share alpha, and each opens other samples, or
            other marks of a codebook.
        opens: Samples, or marks of a codebook, that each claim opens; by default its whole share. Fixed now, since
            whoever may stop when it suits him can get any verdict.
        model: Digest of the protected model, for the record.
        owner: Who commits: a name for people, which nobody checks.
    """
    place = Path(folder)
    canonical({})  # a missing package is refused before anything is written
    if (place / STATEMENT).exists():
        raise InputError(f"{place} holds a commitment already. Choose another folder.")
    if key.fingerprint is not None:
        raise InputError(
            "a fingerprint is forgeable, and a date does not change that: anyone who optimises queries today can claim "
            "models that appear tomorrow. Commit to a key that a watermark was embedded with."
        )
    if key.labels == "keyed" and samples not in {None, key.count}:
        raise InputError(
            f"keyed labels belong to the whole set of {key.count} embedded samples, got samples={samples}."
        )
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha must lie between 0 and 1, got {alpha}. Use 1e-6 for a strong claim.")
    leaves, parts = (codebook_entries if key.labels == "codebook" else sample_entries).statement(key, carriers, samples)
    count, book = len(leaves), parts.get("codebook")
    share = count // claims if claims > 0 else 0
    wanted = share if opens is None else opens
    if not 0 < wanted <= share:
        what = "samples" if book is None else "marks"
        raise InputError(f"each of {claims} claims on {count} {what} can open 1..{share}, got {wanted}.")
    if book is not None and (least := smallest_p_value(key.classes, wanted)) > alpha / claims:
        raise InputError(
            f"{wanted} opened marks over {key.classes} classes can give p = {least:.1g} at the least, which is above "
            f"alpha = {alpha / claims:g} of a claim. Commit at a larger alpha or to fewer claims, or make a key with "
            "more marks."
        )
    if identity is None and not (place / IDENTITY).exists():
        Identity.create().save(place / IDENTITY)
    signer = identity or Identity.load(place / IDENTITY)
    statement = {
        "format": _FORMAT, "root": tree_root(leaves).hex(), "samples": count, "claims": claims, "opens": wanted,
        "purpose": "embed" if key.labels == "keyed" else "verify", "key": dict(key.public()), "key_digest": key.digest,
        "test": test_of(key.public()), "alpha": alpha, "model": model, "owner": owner, "public_key": signer.public,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "labels": None, "codebook": None, "decoys": None,
        **parts,
    }  # fmt: skip
    content = canonical(statement)
    made = Commitment.of(content, signer.sign("commitment", content))
    write_bytes(place / SIGNATURE, made.signature)
    write_bytes(place / STATEMENT, made.content)
    return made
