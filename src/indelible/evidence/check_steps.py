"""The steps of the offline check, in their order; :mod:`indelible.evidence.check` says what each compares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load as parse_tensors

from indelible.base.errors import DamagedFileError
from indelible.data.digests import image_digests
from indelible.evidence import bundle
from indelible.evidence.canonical import canonical, parse_document, require
from indelible.evidence.codebook_entries import AUDITOR
from indelible.evidence.commitment import SIGNATURE, STATEMENT, Commitment
from indelible.evidence.decision import DRAWN, WITH_DECOYS, judge, same
from indelible.evidence.make_claim import FORMAT
from indelible.evidence.opening import Questions, default_challenge
from indelible.evidence.signing import is_signed
from indelible.evidence.timestamp import REPLY, ROOTS, Certificates, Stamp, read_roots, verify_timestamp
from indelible.keys.key import Key
from indelible.verification.suspects.log import Recorded, parse_log
from indelible.verification.suspects.suspect import Suspect, answers

_CLAIM = {
    "commitment": str, "number": int, "challenge": str, "by": str, "suspect": dict, "log": str, "verdict": dict,
    "opened": list, "created": str, "label_key": str | None, "codebook": dict | None, "decoys": list | None,
}  # fmt: skip
_TRIES = (
    "A claimant who tried N {} before the commitment has N times the chance of a false verdict. Multiply the p-value "
    "by the number of tries that you believe possible (2^40 tries: 1e-18 becomes one in a million)."
)
_SOUGHT = (
    "The check did not show that the samples are derived from a secret. The claimant could have searched for images "
    "that any model answers this way, or adversarial ones. Ask to see the key under seal (--key)."
)
_SOUGHT_BUT_DRAWN = (
    "The claimant may have chosen the images, but not their labels, which were drawn after the images were fixed. "
    + _TRIES.format("label keys")
)
_TRIED_MARKS = (
    "The claimant may have chosen the marks, but not their classes, which were drawn after all marks were fixed. "
    + _TRIES.format("codebooks")
)
_BROUGHT = (
    "The classes are bound to no carriers. A claimant who chose the carriers could have fitted them to the "
    "classes, and the claim has no weight. Compare them with the images that you brought (--data)."
)


@dataclass
class Work:
    """What is to be checked, and what the steps find out, one after the other."""

    folder: Path
    roots: Certificates | None
    challenge: str | None
    public_key: str | None
    key: Key | None
    carriers: Any
    suspect: Suspect | None
    files: dict[str, bytes] = field(default_factory=dict)
    stated: Commitment = field(init=False)
    claim: dict[str, Any] = field(default_factory=dict)
    stamp: Stamp | None = None
    log: Recorded = field(init=False)
    questions: Questions = field(init=False)
    derived: bool = False
    caveats: list[str] = field(default_factory=list)

    @property
    def commitment(self) -> Commitment | None:
        """The commitment, if the check has come to it."""
        return getattr(self, "stated", None)

    @property
    def brought(self) -> str | None:
        """Where the carriers of a codebook come from, as far as that is shown; see :class:`Checked`."""
        book = None if self.commitment is None else self.commitment.codebook
        if book is None or book["carriers"] != AUDITOR:
            return None if book is None else str(book["carriers"])
        return "open" if self.carriers is None else "compared"


def _read(work: Work) -> str:
    work.files = bundle.read_files(work.folder)
    return f"{len(work.files)} files, all known"


def _manifest(work: Work) -> str:
    bundle.check_manifest(work.files)
    return "the digest of every file is the listed one"


def _commitment(work: Work) -> str:
    work.stated = stated = Commitment.of(work.files[STATEMENT], work.files[SIGNATURE])
    signer = f"{stated.public_key[:16]}..."
    if work.public_key is None:
        work.caveats.append("Find out who holds the public key: the check does not prove the names in a commitment.")
    elif work.public_key.lower() != stated.public_key:
        raise DamagedFileError(f"it is signed by {signer}, not by the key that you gave")
    return f"{stated.samples} {stated.what}, signed by {signer}"


def _manifest_signature(work: Work) -> str:
    name, signature = bundle.MANIFEST, bundle.MANIFEST_SIGNATURE
    signed = is_signed(work.stated.public_key, "manifest", work.files[name], work.files[signature])
    require(signed, f"{signature} is not the signature of {name} by the committed key")
    return "signed by the same key"


def _timestamp(work: Work) -> str:
    reply, own = work.files.get(REPLY), work.files.get(ROOTS)
    if reply is None:
        none = work.roots is None and own is None
        require(none, "the bundle has no timestamp: nothing shows when the commitment was made")
        work.caveats.append("There is no timestamp: nothing shows when the commitment was made.")
        return "none"
    trusted = work.roots if work.roots is not None or own is None else read_roots(own, "the roots")
    if trusted is None:
        raise DamagedFileError("there is a timestamp but no root certificate to check it with")
    try:
        stamp = verify_timestamp(work.stated.content, reply, trusted)
    except DamagedFileError as error:
        if work.roots is None or own is None:
            raise
        other = verify_timestamp(work.stated.content, reply, read_roots(own, "the roots"))
        raise DamagedFileError(
            f"the timestamp is by {other.authority!r:.120}, which the roots that you gave do not certify: either "
            "they belong to another authority, or the claimant made this one"
        ) from error
    work.stamp = stamp
    if work.roots is None:
        work.caveats.append(
            "The timestamp was checked with the root of the bundle, which proves nothing: give the "
            "authority's root yourself (--roots)."
        )
    return f"{stamp.time} by {stamp.authority}" + (" (root of the bundle)" if work.roots is None else "")


def _claim(work: Work) -> str:
    found, stated = parse_document(work.files[bundle.CLAIM], bundle.CLAIM, FORMAT, _CLAIM), work.stated
    require(found["commitment"] == stated.digest, "the claim is of another commitment")
    number, opened = found["number"], len(found["opened"])
    allowed = number >= 0 and (stated.repeatable or number < stated.claims)
    allows = f"the commitment allows {stated.claims} claims that open {stated.opens} {stated.what} each"
    require(allowed and opened == stated.opens, f"{allows}, but this is number {number} and opens {opened}")
    fits = (found["decoys"] is None) == (stated.test not in WITH_DECOYS)
    require(fits, "a claim shows the secrets of its decoys if the test asks any, and only then")
    stated.entries.check_form(found)
    work.claim = found
    of = f"{number + 1}" if stated.repeatable else f"{number + 1} of {stated.claims}"
    whole = f"of {stated.samples} marks" if stated.codebook is not None else "samples"
    return f"number {of}, {stated.opens} {whole} opened"


def _challenge(work: Work) -> str:
    claim, stated = work.claim, work.stated
    text, by, number = claim["challenge"], claim["by"], claim["number"]
    require(by in {"auditor", "claimant"}, "a challenge is by the auditor or by the claimant")
    if by == "claimant":
        own = text == default_challenge(number)
        require(own, "no auditor set the challenge, but it is not the one that the claim's number gives")
    if work.challenge is not None:
        set_by_you = text == work.challenge and by == "auditor"
        require(set_by_you, f"the challenge is {text!r:.80}, not the one that you set")
    decided = [entry["index"] for entry in claim["opened"]] == stated.opened(text, number)
    require(decided, f"the opened {stated.what} are not those that the challenge decides: picked by hand, or replayed")
    if work.challenge is None and not stated.repeatable:
        work.caveats.append(
            f"You set no challenge: the claimant could know beforehand which {stated.what} would be opened. Give "
            "one of your own (--challenge) for the next."
        )
    if stated.repeatable and number > 0:
        work.caveats.append(
            f"This is claim number {number + 1} of the commitment. If the others were against other models, "
            "multiply the p-value by their number."
        )
    return f"{text!r} by the {by}"


def _images(work: Work) -> str:
    try:
        tensors = parse_tensors(work.files[bundle.IMAGES])
    except (safetensors.SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise DamagedFileError(f"{bundle.IMAGES} is not a safetensors file ({error!s:.80})") from error
    work.questions = work.stated.entries.check_images(work.stated, work.claim, tensors, work.carriers)
    count = len(work.claim["opened"])
    if work.stated.codebook is None:
        return f"{count} samples and carriers have the committed digests"
    each = len(work.claim["codebook"]["images"])
    what = {
        "set aside": f"{each} carriers lead to the root that the classes are bound to",
        "compared": f"{each} carriers are those that you gave",
        "open": f"{each} carriers, said to be the auditor's",
        "none": f"{each} images lead to the root of the pool" if tensors else "images are generated",
    }[work.brought or "none"]
    if work.brought == "open":
        work.caveats.append(_BROUGHT)
    return f"{what}; {count} marks derived from their seeds, {len(work.questions.samples)} samples"


def _log(work: Work) -> str:
    found, claim = parse_log(work.files[bundle.LOG], bundle.LOG), work.claim
    about = {"commitment": work.stated.digest, "challenge": claim["challenge"], "number": claim["number"]}
    require(canonical(dict(found.about)) == canonical(about), "the log is of another claim")
    asked = canonical(dict(found.suspect)) == canonical(claim["suspect"])
    require(asked, "the log is of another suspect than the claim")
    ends = found.head == claim["log"]
    require(ends, "the log does not end as the claim says: it was continued, cut off or replaced")
    require(found.classes == work.stated.key["classes"], "the log is of another number of classes")
    work.log = found
    return f"{len(found.answers)} answers in {found.requests} requests, chain unbroken"


def _answers(work: Work) -> str:
    asked, known, book = work.questions, work.log.answers, work.stated.codebook is not None
    plain = [] if asked.plain is None else [asked.plain]
    every = [asked.samples, *plain, *(one.images for one in asked.decoys)]
    digests = [digest for images in every for digest in image_digests(images)]
    missing = [place for place, digest in enumerate(digests) if digest not in known]
    marks, each = [entry["index"] for entry in work.claim["opened"]], len(asked.samples) // len(asked.labels)
    if missing:
        first = f"of mark {marks[missing[0] // each]}" if book else f"with the digest {digests[missing[0]][:16]}..."
        raise DamagedFileError(
            f"{len(missing)} of {len(digests)} samples are not answered in the log, the first {first}"
        )
    used = set(digests)
    other = len(known.keys() - used)
    whose = "are no samples of the opened marks" if book else "belong neither to the samples nor to the decoys"
    require(other == 0, f"{other} images were asked that {whose}")
    if work.suspect is None:
        work.caveats.append("The answers are the claimant's record of them: ask the suspect again to see (--suspect).")
    if book:
        return f"{len(used)} different images: the samples of {len(marks)} marks, nothing else"
    carriers = ", their carriers" if plain else ""
    return f"{len(used)} images: the opened samples{carriers} and {len(asked.decoys)} decoy keys, nothing else"


def _verdict(work: Work) -> str:
    again = judge(work.stated, work.questions, work.log.predict)
    hits, claimed = f"{again['hits']} of {again['trials']} hits", work.claim["verdict"]
    agree = same(again, claimed) and claimed.get("sentence") == again["sentence"]
    require(agree, f"the answers give {hits} and p = {again['p_value']:.1e}, not the verdict of the claim")
    return f"{hits}, p = {again['p_value']:.1e}: computed again"


def _key(work: Work) -> str | None:
    key, stated = work.key, work.stated
    if key is None:
        drawn = _TRIED_MARKS if stated.codebook is not None else _SOUGHT_BUT_DRAWN
        work.caveats.append(drawn if stated.test in DRAWN else _SOUGHT)
        return None
    committed, other = stated.key.get("marks"), "is not the committed one"
    if key.marks != committed:
        other = f"has {key.marks or 'no'} marks, the committed one {committed or 'none'}"
    require(key.digest == stated.key_digest, f"the key that you gave {other}")
    says = str(stated.entries.check_key(stated, key, work.carriers))
    work.derived = True
    return says


def _suspect(work: Work) -> str | None:
    if work.suspect is None:
        return None
    suspect, classes = work.suspect, int(work.stated.key["classes"])
    again = judge(work.stated, work.questions, lambda images: answers(suspect, images, classes))
    if again["owned"] != work.claim["verdict"]["owned"]:
        raise DamagedFileError(
            f"asked again, the suspect answers {again['hits']} of {again['trials']} samples with their labels, "
            f"p = {again['p_value']:.1e}: another verdict than the claim's"
        )
    return f"asked again: {again['hits']} of {again['trials']} hits, p = {again['p_value']:.1e}"


STEPS: Sequence[tuple[str, Callable[[Work], str | None]]] = (
    ("files", _read), ("manifest", _manifest), ("commitment", _commitment),
    ("manifest signature", _manifest_signature), ("timestamp", _timestamp), ("claim", _claim),
    ("challenge", _challenge),
    ("openings", lambda work: str(work.stated.entries.check_openings(work.stated, work.claim))),
    ("labels", lambda work: str(work.stated.entries.check_labels(work.stated, work.claim))),
    ("images", _images), ("query log", _log),
    ("answers", _answers), ("verdict", _verdict), ("key", _key), ("suspect", _suspect),
)  # fmt: skip
