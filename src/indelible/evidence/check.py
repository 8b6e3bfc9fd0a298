"""The offline check: everything is computed again from the bundle, without network and without any secret.

The steps run in a fixed order, each with a name, and the check ends at the first that does not hold. What the checker
gives (a path, root certificates, a public key, a suspect) is no evidence: if it cannot be used, that is an error.

The table of docs/evidence.md says what each step compares. Two more steps run if the checker gives what they need:
``key``, that the samples are derived from the key that is shown, and ``suspect``, that it gives the verdict again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, IndelibleError, InputError
from indelible.base.records import JsonFields
from indelible.evidence.bundle import BundleFile, check_place, described_files
from indelible.evidence.canonical import parse
from indelible.evidence.check_steps import STEPS, Work
from indelible.evidence.commitment import STATEMENT
from indelible.evidence.decision import DRAWN
from indelible.evidence.timestamp import Stamp, read_roots
from indelible.keys.key import Key
from indelible.verification.suspects.suspect import Suspect

# In these steps, what the checker gave is used: an error that is no finding is the checker's to mend.
_GIVEN = ("key", "suspect")
_PUBLIC = re.compile(r"[0-9a-fA-F]{64}")
_MEANING = (
    "The signatures and the timestamp show who signed, when the commitment existed at the latest, and that nothing was "
    "changed. Only the watermark links the suspect to the committed model."
)


@dataclass(frozen=True, kw_only=True)
class CheckStep:
    """One comparison: its name, whether it holds, and what was found."""

    name: str
    holds: bool
    says: str


@dataclass(frozen=True, kw_only=True)
class Checked(JsonFields):
    """The outcome of a check.

    Attributes:
        holds: Whether every step holds.
        failed: Name of the first step that does not hold.
        steps: All steps up to that one.
        caveats: What the bundle cannot show by itself.
        meaning: What signatures prove, and what the watermark proves.
        commitment: The statement, as far as it was reached.
        claim: The claim, as far as it was reached.
        stamp: Time and authority, if there is a timestamp.
        dated: Whether the timestamp holds under roots that the checker gave.
        derived: Whether the key was shown and gives the committed samples. Without that, a claimant could have sought
            samples that any model answers as he wants: unless the labels were drawn, the claim has no weight against a
            forger.
        drawn: Whether labels, or the classes of a codebook, were drawn again: then the claimant chose none of them,
            whatever the samples are.
        carriers: Of a codebook. ``"set aside"``: the classes are bound to the carriers. ``"compared"``: they are images
            that the checker gave. ``"open"``: who brought them is not shown. ``"none"``: there are none.
        files: Which of the bundle's files are evidence, and which are not.
    """

    holds: bool
    failed: str | None
    steps: tuple[CheckStep, ...]
    caveats: tuple[str, ...]
    meaning: str = _MEANING
    commitment: Mapping[str, Any] | None = None
    claim: Mapping[str, Any] | None = None
    stamp: Stamp | None = None
    dated: bool = False
    derived: bool = False
    drawn: bool = False
    carriers: str | None = None
    files: tuple[BundleFile, ...] = ()

    @property
    def summary(self) -> tuple[str, str]:
        """Two sentences: whether the evidence is complete and unchanged, and what the verdict in it is."""
        if not self.holds or self.claim is None:
            return (
                f"The evidence does not pass the check: the step “{self.failed}” fails.",
                "No verdict follows from it.",
            )
        verdict = self.claim["verdict"]
        whole = f"The evidence is complete and unchanged since it was signed: all {len(self.steps)} checks passed."
        if verdict["owned"]:
            return whole, (
                "The verdict in it is OWNED: the suspect is derived from a model that carries the committed watermark "
                f"(a model that never saw the key gets this verdict with probability at most {verdict['alpha']:g})."
            )
        return whole, (
            "The verdict in it is NOT SHOWN: the test does not show that the suspect is derived from the committed "
            "model, nor that it is not."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        return {**super().to_json(), "summary": list(self.summary)}


def check_bundle(
    folder: str | Path, *, roots: bytes | None = None, challenge: str | None = None, public_key: str | None = None,
    key: Key | None = None, carriers: Any = None, suspect: Suspect | None = None,
) -> Checked:  # fmt: skip
    """Check a bundle; nothing in it is trusted.

    Args:
        folder: The bundle.
        roots: Root certificates (PEM) of timestamp authorities that the checker trusts; without them the date is open.
        challenge: What the checker had asked for, if anything.
        public_key: The owner's public key in hexadecimal, if the checker knows it.
        key: The key, if the owner shows it under seal: then the samples' derivation is checked too.
        carriers: The carriers, needed with ``key``; of a codebook, the images that the checker brought to the claim, or
            that were set aside, to compare.
        suspect: Ask it again, with the bundle's own questions.

    Raises:
        IndelibleError: What the checker gave cannot be used: there is no bundle at ``folder``, ``roots`` are no
            certificates, ``public_key`` is none, ``carriers`` do not fit, ``suspect`` does not answer.
    """
    check_place(folder)
    try:
        trusted = None if roots is None else read_roots(roots, "the roots")
    except DamagedFileError as error:
        raise InputError(
            "the roots that you gave (--roots) are not certificates in PEM. Give the root certificates of the "
            "timestamp authority; from DER: openssl x509 -inform der -in FILE -out roots.pem."
        ) from error
    if public_key is not None and not _PUBLIC.fullmatch(public_key):
        raise InputError(f"a public key is 64 hexadecimal digits, got {public_key!r:.80} (--public-key).")
    work = Work(Path(folder), trusted, challenge, public_key, key, carriers, suspect)
    steps: list[CheckStep] = []
    failed = None
    for name, step in STEPS:
        try:
            says = step(work)
        except IndelibleError as error:
            if name in _GIVEN and not isinstance(error, DamagedFileError):
                raise
            failed = name
            steps.append(CheckStep(name=name, holds=False, says=str(error)))
            break
        if says is not None:
            steps.append(CheckStep(name=name, holds=True, says=says))
    dated = work.stamp is not None and roots is not None
    return Checked(
        holds=failed is None, failed=failed, steps=tuple(steps), caveats=tuple(work.caveats),
        commitment=None if work.commitment is None else parse(work.commitment.content, STATEMENT),
        claim=work.claim or None, stamp=work.stamp, dated=dated,
        derived=work.derived, drawn=failed is None and work.stated.test in DRAWN, carriers=work.brought,
        files=described_files(work.files, dated=dated),
    )  # fmt: skip
