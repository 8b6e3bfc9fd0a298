"""A claim: open some of the committed samples, ask the suspect, write the bundle.

What was opened is spent: the suspect has seen it. So the choice is written down (``claim-000.json`` in the commitment
folder) before the first query, later claims open other samples, and a claim that was broken off goes on from its log
when the same command is given again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import canonical_json, read_json, write_json
from indelible.base.merkle import audit_path, tree_root
from indelible.data.images import ImageData
from indelible.evidence.bundle import CLAIM, IMAGES, LOG, write_bundle
from indelible.evidence.canonical import canonical
from indelible.evidence.commitment import IDENTITY, SIGNATURE, STATEMENT, Commitment, Entries, entries_of
from indelible.evidence.decision import KEYED, decide
from indelible.evidence.identity import Identity
from indelible.evidence.opening import challenge_seed, decoy_samples, default_challenge, opened_indices
from indelible.evidence.timestamp import REPLY, ROOTS
from indelible.keys.key import Key, WatermarkSamples
from indelible.keys.labels import label_key
from indelible.verify.asking import planned
from indelible.verify.suspects.log import QueryLog
from indelible.verify.suspects.logged import LoggedSuspect, description
from indelible.verify.suspects.protocol import Suspect

__all__ = ["FORMAT", "Questions", "chosen", "claim", "judge"]

FORMAT = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Questions:
    """What a claim asks: the opened samples, and decoys on their carriers.

    Attributes:
        samples: uint8 (n, C, H, W), the opened samples.
        labels: int64 (n,), their committed labels.
        true: int64 (n,), the classes of their carriers.
        decoys: Samples of each decoy key; none with keyed labels, whose null rate is known.
    """

    samples: torch.Tensor
    labels: torch.Tensor
    true: torch.Tensor
    decoys: Sequence[WatermarkSamples]

    @classmethod
    def of(cls, commitment: Commitment, seed: bytes, samples: torch.Tensor, labels: torch.Tensor,
           carriers: ImageData) -> "Questions":  # fmt: skip
        """Return what is asked after a challenge."""
        decoys = [] if commitment.test == KEYED else decoy_samples(commitment.key, seed, carriers)
        return cls(samples=samples, labels=labels, true=carriers.labels, decoys=decoys)


def chosen(commitment: Commitment, challenge: str, number: int) -> list[int]:
    """Return the indices of the samples that a claim opens."""
    return opened_indices(
        challenge_seed(commitment.digest, challenge), commitment.root, size=commitment.samples,
        parts=commitment.claims, number=number, opens=commitment.opens,
    )  # fmt: skip


def judge(commitment: Commitment, questions: Questions, suspect: Suspect) -> dict[str, Any]:
    """Ask (or look up) every question and return the verdict as JSON values."""
    given = suspect.predict(questions.samples)
    untargeted, with_truth = commitment.key.get("labels") == "untargeted", commitment.key.get("kind") != "unrelated"
    # Untargeted: held against the carriers' classes, as the decoys are; other committed labels would hit by themselves.
    found = given != questions.true if untargeted else given == questions.labels
    hits = int(found.sum())
    decoys = [(int(one.hits(suspect.predict(one.images)).sum()), len(one)) for one in questions.decoys]
    return decide(
        commitment.test, hits, len(questions.labels), decoys, alpha=commitment.alpha / commitment.claims,
        classes=int(commitment.key["classes"]), with_truth=with_truth,
        free=int((given != questions.true).sum()) if with_truth else None,
        literal=commitment.key.get("scheme") == "paper", untargeted=untargeted,
    )  # fmt: skip


def claim(
    folder: str | Path, key: Key, carriers: Any, suspect: Suspect, out: str | Path, *, challenge: str | None = None,
    identity: Identity | None = None, budget: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Ask a suspect the samples that a challenge opens, and write the bundle.

    Args:
        folder: The commitment folder.
        key: The owner's key.
        carriers: The images that were given to :func:`~indelible.evidence.commitment.commit`.
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
    entries = _entries(commitment, key, carriers)
    who = description(suspect)
    state = _begun(place, commitment, who, challenge)
    seed = challenge_seed(commitment.digest, state["challenge"])
    rows = torch.tensor(state["opened"], dtype=torch.int64)
    questions = Questions.of(
        commitment, seed, entries.samples.images[rows], entries.samples.labels[rows], entries.carriers.subset(rows)
    )
    about = {"commitment": commitment.digest, "challenge": state["challenge"], "number": state["number"]}
    log = place / f"claim-{state['number']:03d}.jsonl"
    plan = planned(lambda stand_in: judge(commitment, questions, stand_in), seed=int.from_bytes(seed[:7], "big"))
    with QueryLog(log, classes=key.classes, suspect=who, about=about) as kept:
        asked = LoggedSuspect(suspect, kept, classes=key.classes, budget=budget)
        asked.ask_all(plan.images)
        verdict, head = judge(commitment, questions, asked), kept.recorded.head
    document = {
        "format": FORMAT, "commitment": commitment.digest, "number": state["number"],
        "challenge": state["challenge"], "by": state["by"], "suspect": who, "log": head, "verdict": verdict,
        "opened": _openings(entries, state["opened"]), "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "label_key": None if entries.set_leaves is None else label_key(key.secret).hex(),
    }  # fmt: skip
    files = {
        STATEMENT: commitment.content, SIGNATURE: commitment.signature, CLAIM: canonical(document),
        LOG: log.read_bytes(),
        IMAGES: save({"samples": questions.samples.contiguous(),
                      "carriers": entries.carriers.images[rows].contiguous()}),
        **{name: (place / name).read_bytes() for name in (REPLY, ROOTS) if (place / name).is_file()},
    }  # fmt: skip
    write_bundle(out, files, signer)
    _keep(place, {**state, "bundle": Path(out).name})
    return verdict


def _entries(commitment: Commitment, key: Key, carriers: Any) -> Entries:
    if key.digest != commitment.key_digest:
        raise InputError("the key is not the one that was committed to. Give the key of the commitment.")
    entries = entries_of(key, carriers, samples=commitment.samples, purpose=commitment.purpose)
    if tree_root(entries.leaves).hex() != commitment.root:
        raise InputError("key and carriers do not give the committed samples. Give the data that was committed with.")
    return entries


def _openings(entries: Entries, opened: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {"index": index, **entries.documents[index], "path": _path(entries.leaves, index),
         "set_path": _path(entries.set_leaves or [], index)}
        for index in opened
    ]  # fmt: skip


def _path(leaves: Sequence[bytes], index: int) -> list[str]:
    return [one.hex() for one in audit_path(leaves, index)]


def _begun(place: Path, commitment: Commitment, who: Mapping[str, Any], challenge: str | None) -> dict[str, Any]:
    """Return the claim that was broken off, if it is this one; else begin a new one and write it down."""
    before = [_state(path) for path in sorted(place.glob("claim-[0-9][0-9][0-9].json"))]
    number = len(before)
    if before and "bundle" not in before[-1]:
        last = before[-1]
        wanted = default_challenge(number - 1) if challenge is None else challenge
        if last["challenge"] == wanted and canonical_json(last["suspect"]) == canonical_json(who):
            return last
    text = default_challenge(number) if challenge is None else challenge
    opened = chosen(commitment, text, number)
    state = {
        "number": number, "challenge": text, "by": "claimant" if challenge is None else "auditor", "suspect": dict(who),
        "opened": opened,
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
