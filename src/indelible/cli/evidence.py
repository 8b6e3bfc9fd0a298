"""``indelible evidence``: commit before release, stamp, claim, and check a claim offline."""

import argparse
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import tensor_digest
from indelible.cli.options import asked_suspect, emit
from indelible.cli.terminal import describe_check
from indelible.data.catalog import load
from indelible.data.images import Data
from indelible.evidence import Commitment, Identity, attach_timestamp, check_bundle, claim, commit, request_timestamp
from indelible.evidence.bundle import check_place
from indelible.evidence.codebook_entries import AUDITOR
from indelible.evidence.signing import sign_model, verify_model
from indelible.evidence.timestamp import REQUEST, send_request
from indelible.keys.key import Key
from indelible.report.bundle_page import write_page
from indelible.train.run_folder import Run
from indelible.verification import Suspect

_BRING = (
    "The key is bound to no carriers: in a claim, the auditor must bring the images (claim --data). A key made with "
    "carriers set aside does not need that.\n"
)


def _content_of(path: Path) -> bytes:
    """Return the bytes of a file that an option names."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}). Check the path.") from error


def _owners(arguments: argparse.Namespace) -> tuple[Run, Key, Data]:
    """Return the owner's run, its key, and the carriers of the samples."""
    saved = Run.load(arguments.run_folder)
    key = saved.key()
    if key.labels == "keyed":  # the model has memorised the embedded samples, so these are what it is asked
        return saved, key, saved.images()[0]
    return saved, key, load(arguments.data or saved.data)[1]


def _identity(arguments: argparse.Namespace) -> Identity | None:
    return None if arguments.identity is None else Identity.load(arguments.identity)


def run_commit(arguments: argparse.Namespace) -> int:
    """Fix a key's samples, test and level, signed, before release."""
    saved, key, test = _owners(arguments)
    made = commit(
        key, test, arguments.out, alpha=arguments.alpha, samples=arguments.samples, claims=arguments.claims,
        opens=arguments.open, owner=arguments.owner,
        model=tensor_digest(saved.model().state_dict()), identity=_identity(arguments),
    )  # fmt: skip
    number = f"{made.claims} claims of {made.opens} each"
    if made.repeatable:
        number = "any number of claims, all opened in each"
    free = made.codebook is not None and made.codebook["carriers"] == AUDITOR
    text = (
        f"committed to {made.samples} {made.what} in {arguments.out}: {number} (statement {made.digest[:16]}..., "
        f"public key {made.public_key[:16]}...).\n{_BRING if free else ''}Have it dated before you release the model: "
        "indelible evidence timestamp. Keep identity.pem, the key and the data: a claim needs all three."
    )
    return emit(
        arguments, {"commitment": str(arguments.out), "digest": made.digest, "public_key": made.public_key}, text
    )


def run_timestamp(arguments: argparse.Namespace) -> int:
    """Have an authority date the commitment."""
    content = Commitment.load(arguments.commitment).content
    if (arguments.attach or arguments.url) and arguments.roots is None:
        raise InputError("give the authority's root certificates with --roots: an answer is kept only if it holds.")
    if arguments.attach is not None:
        reply = _content_of(arguments.attach)
    else:
        request = request_timestamp(content, arguments.commitment)
        if arguments.url is None:
            place = arguments.commitment / REQUEST
            text = (
                f"wrote {place}. Send it: curl -H 'Content-Type: application/timestamp-query' --data-binary @{place} "
                "AUTHORITY -o reply.tsr; then --attach reply.tsr --roots authority.pem"
            )
            return emit(arguments, {"request": str(place)}, text)
        reply = send_request(request, arguments.url)
    stamp = attach_timestamp(content, reply, _content_of(arguments.roots), arguments.commitment)
    return emit(
        arguments, {"time": stamp.time, "authority": stamp.authority}, f"dated {stamp.time} by {stamp.authority}"
    )


def run_claim(arguments: argparse.Namespace) -> int:
    """Open samples, ask a suspect, write a bundle."""
    saved, key, test = _owners(arguments)
    suspect = asked_suspect(arguments, key.classes, key.shape, saved)
    verdict = claim(
        arguments.commitment, key, test, suspect, arguments.out, challenge=arguments.challenge,
        budget=arguments.budget, identity=_identity(arguments),
    )  # fmt: skip
    word = "OWNED" if verdict["owned"] else "NOT SHOWN"
    text = f"{word} at alpha {verdict['alpha']:g}, {verdict['queries']} queries\n{verdict['sentence']}\n"
    document = {"bundle": str(arguments.out), "verdict": verdict}
    return emit(arguments, document, f"{text}the bundle is in {arguments.out}", ok=verdict["owned"])


def run_sign(arguments: argparse.Namespace) -> int:
    """Sign a run's weights in the OpenSSF format."""
    folder = arguments.run_folder
    signature = sign_model(folder / "model.safetensors", folder / "model.sig", arguments.key)
    return emit(
        arguments, {"signature": str(signature)}, f"wrote {signature}. It shows unchanged weights, not their origin."
    )


def run_verify_model(arguments: argparse.Namespace) -> int:
    """Check a run's weights against such a signature."""
    weights, signature = arguments.run_folder / "model.safetensors", arguments.run_folder / "model.sig"
    try:
        verify_model(weights, signature, arguments.public_key)
    except DamagedFileError as error:
        return emit(arguments, {"holds": False, "why": str(error)}, f"DOES NOT HOLD: {error}", ok=False)
    return emit(arguments, {"holds": True}, f"HOLDS: {weights} is what was signed. Only a watermark shows its origin.")


def run_check(arguments: argparse.Namespace) -> int:
    """Check a bundle offline; ``show`` also writes a page."""
    roots = None if arguments.roots is None else _content_of(arguments.roots)
    checked = check_bundle(
        arguments.bundle, roots=roots, challenge=arguments.challenge, public_key=arguments.public_key,
        **_shown(arguments),
    )  # fmt: skip
    document, text = checked.to_json(), describe_check(checked)
    if arguments.action == "show" and arguments.html is not None:
        write_page(arguments.bundle, checked, arguments.html)
        document, text = {**document, "page": str(arguments.html)}, f"{text}\nwrote {arguments.html}"
    owned = checked.holds and checked.claim is not None and checked.claim["verdict"]["owned"]
    return emit(arguments, document, text, ok=owned)


run_show = run_check


def _shown(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what an expert may look into besides the bundle: the key under seal, the suspect itself."""
    found: dict[str, Any] = {}
    run: Run | None = None
    if arguments.shown_run is not None:
        if arguments.key is not None:
            raise InputError("--run holds a key itself: leave out --key.")
        arguments.run_folder = arguments.shown_run
        run, key, carriers = _owners(arguments)
        found = {"key": key, "carriers": carriers}
    elif arguments.key is not None:
        alone = arguments.key.is_dir() and Key.load(arguments.key).labels == "codebook"
        if arguments.data is None and not alone:
            raise InputError("--key needs --data: the carriers that the samples were drawn on.")
        found = {"key": Key.load(arguments.key)}
    if arguments.data is not None and arguments.shown_run is None:
        found["carriers"] = load(arguments.data)[1]
    if arguments.suspect is not None:
        found["suspect"] = _suspect(arguments, run)
    return found


def _suspect(arguments: argparse.Namespace, run: Run | None) -> Suspect | None:
    """Open the suspect as the commitment wants it asked; None if that is damaged, which the check will say."""
    check_place(arguments.bundle)
    try:
        stated = Commitment.load(arguments.bundle).key
    except DamagedFileError:
        return None
    return asked_suspect(arguments, int(stated["classes"]), tuple(stated["shape"]), run)
