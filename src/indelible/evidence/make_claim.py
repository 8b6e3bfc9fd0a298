"""A claim: open committed samples, or marks of a codebook, ask the suspect, write the bundle.

What is opened is written down (``claim-000.json`` in the commitment folder) before the first query, and an
interrupted claim continues from its log when the same command is given again. A commitment to several claims opens
other samples, or marks, in each: what was opened is spent, since the suspect has seen it.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors.torch import save

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import canonical_json, read_json, write_json
from indelible.evidence.bundle import CLAIM, IMAGES, LOG, write_bundle
from indelible.evidence.canonical import canonical
from indelible.evidence.commitment import IDENTITY, SIGNATURE, STATEMENT, Commitment
from indelible.evidence.decision import judge
from indelible.evidence.opening import challenge_seed, default_challenge
from indelible.evidence.signing import Identity
from indelible.evidence.timestamp import REPLY, ROOTS
from indelible.keys.key import Key
from indelible.verification.careful_queries import ask_logged
from indelible.verification.suspects.log import description
from indelible.verification.suspects.suspect import Suspect

FORMAT = 3


def claim(
    folder: str | Path, key: Key, carriers: Any, suspect: Suspect, out: str | Path, *, challenge: str | None = None,
    identity: Identity | None = None, budget: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Ask a suspect the samples that a challenge opens, and write the bundle.

    Args:
        folder: The commitment folder.
        key: The owner's key.
        carriers: The images that were given to :func:`~indelible.evidence.commitment.commit`. For a codebook whose
            classes are bound to no carriers, those that the auditor brought.
        suspect: Who is asked.
        out: Folder of the bundle, new or empty.
        challenge: The auditor's, or None.
        identity: The signing key; by default that of the commitment folder.
        budget: Images that may be sent to the suspect in all.

    Returns:
        The verdict as JSON values.
    """
    place, commitment = Path(folder), Commitment.load(folder)
    signer = identity or Identity.load(place / IDENTITY)
    if signer.public != commitment.public_key:
        raise InputError("the signing key is not the one of the commitment. Give the identity that committed.")
    if key.digest != commitment.key_digest:
        marks, committed = key.marks, commitment.key.get("marks")
        why = f" (it has {marks or 'no'} marks of a codebook, {committed or 'none'} committed)"
        raise InputError(
            f"the key is not the one that was committed to{why if marks != committed else ''}. Give the key of the "
            "commitment."
        )
    who, entries = description(suspect), commitment.entries
    # Before the claim takes a number: these may be the wrong images.
    material, brought = entries.material(commitment, key, carriers)
    state = _begun(place, commitment, who, challenge, brought)
    parts, tensors = entries.opened(commitment, key, material, state["opened"])
    parts = {"label_key": None, "codebook": None, "decoys": None, **parts}
    questions = entries.check_images(commitment, parts, tensors)  # what is asked is what a check will ask for
    seed = challenge_seed(commitment.digest, state["challenge"])
    about = {"commitment": commitment.digest, "challenge": state["challenge"], "number": state["number"]}
    log = place / f"claim-{state['number']:03d}.jsonl"
    verdict, head = ask_logged(
        lambda asked: judge(commitment, questions, asked.predict), suspect, log, classes=key.classes, about=about,
        seed=int.from_bytes(seed[:7], "big"), budget=budget,
    )  # fmt: skip
    document = {
        "format": FORMAT, "commitment": commitment.digest, "number": state["number"],
        "challenge": state["challenge"], "by": state["by"], "suspect": who, "log": head, "verdict": verdict,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **parts,
    }  # fmt: skip
    files = {
        STATEMENT: commitment.content, SIGNATURE: commitment.signature, CLAIM: canonical(document),
        LOG: log.read_bytes(),
        IMAGES: save({name: one.contiguous() for name, one in tensors.items()}),
        **{name: (place / name).read_bytes() for name in (REPLY, ROOTS) if (place / name).is_file()},
    }  # fmt: skip
    write_bundle(out, files, signer)
    _keep(place, {**state, "bundle": Path(out).name})
    return verdict


def _begun(
    place: Path, commitment: Commitment, who: Mapping[str, Any], challenge: str | None, brought: str | None
) -> dict[str, Any]:
    """Return the claim that was interrupted, if it is this one; else begin a new one and write it down."""
    before = [_state(path) for path in sorted(place.glob("claim-[0-9][0-9][0-9].json"))]
    if before and "bundle" not in before[-1]:
        last = before[-1]
        wanted = default_challenge(len(before) - 1) if challenge is None else challenge
        same_images = last.get("carriers") == brought
        if last["challenge"] == wanted and same_images and canonical_json(last["suspect"]) == canonical_json(who):
            return last
    number = len(before)
    text = default_challenge(number) if challenge is None else challenge
    state = {
        "number": number, "challenge": text, "by": "claimant" if challenge is None else "auditor", "suspect": dict(who),
        "opened": commitment.opened(text, number), "carriers": brought,
    }  # fmt: skip
    _keep(place, state)
    return state


def _keep(place: Path, state: Mapping[str, Any]) -> None:
    write_json(place / f"claim-{state['number']:03d}.json", state, mode=0o600)


def _state(path: Path) -> dict[str, Any]:
    found = read_json(path)
    names = {"number", "challenge", "by", "suspect", "opened"}
    if not isinstance(found, dict) or not names <= found.keys() or not isinstance(found["opened"], list):
        raise DamagedFileError(f"{path} does not say what a claim opened: {json.dumps(found)[:80]}. Restore it.")
    return found
