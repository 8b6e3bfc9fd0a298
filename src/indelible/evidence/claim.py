"""A claim: open committed samples, or marks of a codebook, ask the suspect, write the bundle.

What is opened is written down (``claim-000.json`` in the commitment folder) before the first query, and an
interrupted claim continues from its log when the same command is given again. A commitment to several claims opens
other samples, or marks, in each: what was opened is spent, since the suspect has seen it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import canonical_json, read_json, write_json
from indelible.base.merkle import tree_root
from indelible.data.digests import image_digests
from indelible.data.images import Data, ImageData
from indelible.evidence.bundle import CLAIM, IMAGES, LOG, write_bundle
from indelible.evidence.canonical import canonical
from indelible.evidence.codebook_checks import AUDITOR, NO_CARRIERS, SET_ASIDE
from indelible.evidence.codebook_opening import claim_carriers, open_marks
from indelible.evidence.commitment import IDENTITY, SIGNATURE, STATEMENT, Commitment, Entries, entries_of
from indelible.evidence.decision import PAIRED, WITH_DECOYS, decide, decide_codebook, decide_paired
from indelible.evidence.opening import (
    Questions,
    challenge_seed,
    decoy_samples,
    decoy_secrets,
    default_challenge,
    hex_paths,
    opened_indices,
)
from indelible.evidence.signing import Identity
from indelible.evidence.timestamp import REPLY, ROOTS
from indelible.keys.key import Key
from indelible.keys.labels import label_key
from indelible.verification.careful_queries import ask_logged
from indelible.verification.suspects.log import description
from indelible.verification.suspects.suspect import Suspect

FORMAT = 3
_BINDING = {SET_ASIDE: "carriers", AUDITOR: "auditor", NO_CARRIERS: "key"}


def sample_questions(
    commitment: Commitment, decoys: Sequence[bytes], samples: Tensor, labels: Tensor, carriers: ImageData
) -> Questions:
    """Return what is asked of a key with one mark, with the secrets of the decoys."""
    asked = decoy_samples(commitment.key, decoys, carriers)
    plain = carriers.images if commitment.test == PAIRED else None
    return Questions(samples=samples, labels=labels, true=carriers.labels, decoys=asked, plain=plain)


def chosen(commitment: Commitment, challenge: str, number: int) -> list[int]:
    """Return the indices of the samples that a claim opens."""
    return opened_indices(
        challenge_seed(commitment.digest, challenge), commitment.root, size=commitment.samples,
        parts=commitment.claims, number=number, opens=commitment.opens,
    )  # fmt: skip


def judge(commitment: Commitment, questions: Questions, ask: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Ask (or look up) every question and return the verdict as JSON values."""
    given, level = ask(questions.samples), commitment.alpha / commitment.claims
    classes = int(commitment.key["classes"])
    if commitment.codebook is not None:
        return decide_codebook(
            given.reshape(len(questions.labels), -1), questions.true, questions.labels, alpha=level, classes=classes,
            binding=_BINDING[commitment.codebook["carriers"]],
        )  # fmt: skip
    assert questions.true is not None, "only a codebook asks images without a class"  # noqa: S101 - see Questions
    literal = commitment.key.get("scheme") == "paper"
    if questions.plain is not None:
        # Held against the carriers' classes: other committed labels would hit by themselves.
        asked = [questions.plain, *(one.images for one in questions.decoys)]
        before, *others = [ask(images) != questions.true for images in asked]
        return decide_paired(before, given != questions.true, others, alpha=level, literal=literal)
    with_truth = commitment.key.get("kind") != "unrelated"
    hits = int((given == questions.labels).sum())
    decoys = [(int(one.hits(ask(one.images)).sum()), len(one)) for one in questions.decoys]
    return decide(
        commitment.test, hits, len(questions.labels), decoys, alpha=level, classes=classes, with_truth=with_truth,
        free=int((given != questions.true).sum()) if with_truth else None, literal=literal,
    )  # fmt: skip


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
    _check_key(commitment, key)
    # Before the claim takes a number: these may be the wrong images.
    images: Entries | Data = (
        _entries(commitment, key, carriers) if commitment.codebook is None
        else claim_carriers(commitment.codebook, key, carriers)
    )  # fmt: skip
    who = description(suspect)
    state = _begun(place, commitment, who, challenge, _brought(commitment, images))
    seed = challenge_seed(commitment.digest, state["challenge"])
    questions, parts, tensors = _opened(commitment, key, images, state["opened"])
    about = {"commitment": commitment.digest, "challenge": state["challenge"], "number": state["number"]}
    log = place / f"claim-{state['number']:03d}.jsonl"
    verdict, head = ask_logged(
        lambda asked: judge(commitment, questions, asked.predict), suspect, log, classes=key.classes, about=about,
        seed=int.from_bytes(seed[:7], "big"), budget=budget,
    )  # fmt: skip
    document = {
        "format": FORMAT, "commitment": commitment.digest, "number": state["number"],
        "challenge": state["challenge"], "by": state["by"], "suspect": who, "log": head, "verdict": verdict,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "label_key": None, "codebook": None,
        "decoys": None, **parts,
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


def _check_key(commitment: Commitment, key: Key) -> None:
    if key.digest == commitment.key_digest:
        return
    marks, committed = key.marks, commitment.key.get("marks")
    why = (
        "" if marks == committed else f" (it has {marks or 'no'} marks of a codebook, {committed or 'none'} committed)"
    )
    raise InputError(f"the key is not the one that was committed to{why}. Give the key of the commitment.")


def _brought(commitment: Commitment, images: "Entries | Data") -> str | None:
    """Return a digest of the carriers if an auditor brings them: another set is another claim."""
    if isinstance(images, Entries) or (commitment.codebook or {}).get("carriers") != AUDITOR:
        return None
    held = images.gather(torch.arange(len(images)))
    return hashlib.sha256(canonical_json([image_digests(held.images.cpu()), held.labels.tolist()])).hexdigest()


def _opened(
    commitment: Commitment, key: Key, images: "Entries | Data", numbers: Sequence[int]
) -> tuple[Questions, dict[str, Any], dict[str, Tensor]]:
    """Return what is asked, what the claim shows of it, and the images of the bundle."""
    if not isinstance(images, Entries):
        return open_marks(commitment.codebook or {}, key, images, numbers)
    rows, entries = torch.tensor(numbers, dtype=torch.int64), images
    secrets = decoy_secrets(key) if commitment.test in WITH_DECOYS else []
    plain = entries.carriers.subset(rows)
    samples, labels = entries.samples.images[rows], entries.samples.labels[rows]
    questions = sample_questions(commitment, secrets, samples, labels, plain)
    parts = {
        "opened": _openings(entries, numbers),
        "label_key": None if entries.set_leaves is None else label_key(key.secret).hex(),
        "decoys": [one.hex() for one in secrets] if commitment.test in WITH_DECOYS else None,
    }
    return questions, parts, {"samples": questions.samples, "carriers": plain.images}


def _entries(commitment: Commitment, key: Key, carriers: Any) -> Entries:
    entries = entries_of(key, carriers, samples=commitment.samples, purpose=commitment.purpose)
    if tree_root(entries.leaves).hex() != commitment.root:
        raise InputError("key and carriers do not give the committed samples. Give the data that was committed with.")
    return entries


def _openings(entries: Entries, opened: Sequence[int]) -> list[dict[str, Any]]:
    paths, in_set = hex_paths(entries.leaves, opened), hex_paths(entries.set_leaves or [], opened)
    return [
        {"index": index, **entries.documents[index], "path": path, "set_path": set_path}
        for index, path, set_path in zip(opened, paths, in_set, strict=True)
    ]


def _begun(
    place: Path, commitment: Commitment, who: Mapping[str, Any], challenge: str | None, brought: str | None
) -> dict[str, Any]:
    """Return the claim that was interrupted, if it is this one; else begin a new one and write it down."""
    before = [_state(path) for path in sorted(place.glob("claim-[0-9][0-9][0-9].json"))]
    number = len(before)
    if before and "bundle" not in before[-1]:
        last = before[-1]
        wanted = default_challenge(number - 1) if challenge is None else challenge
        same_images = last.get("carriers") == brought
        if last["challenge"] == wanted and same_images and canonical_json(last["suspect"]) == canonical_json(who):
            return last
    text = default_challenge(number) if challenge is None else challenge
    opened = chosen(commitment, text, number)
    state = {
        "number": number, "challenge": text, "by": "claimant" if challenge is None else "auditor", "suspect": dict(who),
        "opened": opened, "carriers": brought,
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
