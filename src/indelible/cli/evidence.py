"""``indelible evidence``: commit before release, stamp, claim, and check a claim offline."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import indelible
from indelible.base.errors import DamagedFileError, InputError
from indelible.cli import options
from indelible.cli.options import asked_suspect, content_of, emit, owners

if TYPE_CHECKING:
    from indelible.evidence import Identity
    from indelible.verification import Suspect

HELP = "commit to a key, date the commitment, claim a model with it, check a claim offline"
EXAMPLES = [
    "indelible evidence commit runs/app --out commitment --owner 'Example Ltd'",
    "indelible evidence timestamp commitment --url https://tsa.example.org --roots authority.pem",
    "indelible evidence claim commitment runs/app --suspect http://host/v2/models/m --input dtype=uint8 --out bundle",
    "indelible evidence check bundle --roots authority.pem --challenge 'auditor 7319'",
    "indelible evidence show bundle --html bundle.html --roots authority.pem --challenge 'auditor 7319'",
    "indelible evidence sign runs/app --key ec.pem && indelible evidence verify-model runs/app --public-key ec-pub.pem",
]
_BRING = (
    "The key is bound to no carriers: in a claim, the auditor must bring the images (claim --data). A key made with "
    "carriers set aside does not need that.\n"
)


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible evidence``."""
    made = options.add_actions(
        command,
        commit=(_commit, "fix a key's samples, test and level, signed, before release"),
        timestamp=(_timestamp, "have an authority date the commitment (RFC 3161)"),
        claim=(_claim, "open samples, ask a suspect, write a bundle (exit 1: not shown)"),
        check=(_check, "check a bundle offline (exit code 1 if it does not hold)"),
        show=(_check, "check a bundle and tell what is in it; --html writes a page"),
        sign=(_sign, "sign a run's weights in the OpenSSF format"),
        verify_model=(_verify_model, "check a run's weights against such a signature"),
    )
    _owner_options(made["commit"], made["timestamp"], made["claim"])
    for name in ("check", "show"):
        _checking_options(made[name])
    made["show"].add_argument("--html", type=Path, help="write a self-contained page")
    for name in ("sign", "verify-model"):
        made[name].add_argument("run_folder", type=Path, metavar="RUN")
    made["sign"].add_argument("--key", type=Path, required=True, help="elliptic-curve private key (PEM)")
    made["verify-model"].add_argument("--public-key", type=Path, required=True, help="its public key (PEM)")
    options.common(*made.values())


def _owner_options(
    commit: argparse.ArgumentParser, timestamp: argparse.ArgumentParser, claim: argparse.ArgumentParser
) -> None:
    add = commit.add_argument
    add("run_folder", type=Path, metavar="RUN", help="the run that embedded the watermark")
    add("--out", type=Path, required=True, help="folder of the commitment; its identity.pem is secret")
    add("--alpha", type=float, default=1e-6, help="level of a claim (default: 1e-6)")
    add("--samples", type=int, help="samples to commit to (default: all of the test images; codebook: as in verify)")
    add(
        "--claims", type=int, default=1,
        help="1: a claim opens everything, and can be repeated against other models (default); N: N claims, each with "
        "its own samples or marks, share alpha",
    )  # fmt: skip
    opened = "samples, or marks of a codebook, that each claim opens (default: all)"
    add("--open", type=int, metavar="N", help=opened)
    add("--owner", default="", help="name of the owner")
    timestamp.add_argument("commitment", type=Path)
    timestamp.add_argument("--url", help="address of the authority; without it, only write the request")
    timestamp.add_argument("--attach", type=Path, metavar="TSR", help="attach an answer that you fetched yourself")
    timestamp.add_argument("--roots", type=Path, help="root certificates to check the answer with (PEM)")
    claim.add_argument("commitment", type=Path)
    claim.add_argument("run_folder", type=Path, metavar="RUN", help="the owner's run: key, data, architecture")
    claim.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    claim.add_argument("--challenge", help="text that the auditor chose and you could not foresee")
    for command in (commit, claim):
        command.add_argument("--identity", type=Path, help="Ed25519 signing key (default: identity.pem of the folder)")
        command.add_argument("--data", help="carriers (default: the run's test images)")
    options.asking_options(claim, unless=None, log=False)


def _identity(arguments: argparse.Namespace) -> "Identity | None":
    from indelible.evidence import Identity

    return None if arguments.identity is None else Identity.load(arguments.identity)


def _commit(arguments: argparse.Namespace) -> int:
    from indelible.base.files import tensor_digest
    from indelible.evidence import commit
    from indelible.evidence.codebook import AUDITOR

    saved, key, test = owners(arguments)
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


def _timestamp(arguments: argparse.Namespace) -> int:
    from indelible.evidence import Commitment, attach_timestamp, request_timestamp
    from indelible.evidence.timestamp import REQUEST, send_request

    content = Commitment.load(arguments.commitment).content
    if (arguments.attach or arguments.url) and arguments.roots is None:
        raise InputError("give the authority's root certificates with --roots: an answer is kept only if it holds.")
    if arguments.attach is not None:
        reply = content_of(arguments.attach)
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
    stamp = attach_timestamp(content, reply, content_of(arguments.roots), arguments.commitment)
    return emit(
        arguments, {"time": stamp.time, "authority": stamp.authority}, f"dated {stamp.time} by {stamp.authority}"
    )


def _claim(arguments: argparse.Namespace) -> int:
    from indelible.evidence import claim

    saved, key, test = owners(arguments)
    suspect = asked_suspect(arguments, key.classes, key.shape, saved)
    verdict = claim(
        arguments.commitment, key, test, suspect, arguments.out, challenge=arguments.challenge,
        budget=arguments.budget, identity=_identity(arguments),
    )  # fmt: skip
    word = "OWNED" if verdict["owned"] else "NOT SHOWN"
    text = f"{word} at alpha {verdict['alpha']:g}, {verdict['queries']} queries\n{verdict['sentence']}\n"
    document = {"bundle": str(arguments.out), "verdict": verdict}
    return emit(arguments, document, f"{text}the bundle is in {arguments.out}", ok=verdict["owned"])


def _sign(arguments: argparse.Namespace) -> int:
    from indelible.evidence.signing import sign_model

    folder = arguments.run_folder
    signature = sign_model(folder / "model.safetensors", folder / "model.sig", arguments.key)
    return emit(
        arguments, {"signature": str(signature)}, f"wrote {signature}. It shows unchanged weights, not their origin."
    )


def _verify_model(arguments: argparse.Namespace) -> int:
    from indelible.evidence.signing import verify_model

    weights, signature = arguments.run_folder / "model.safetensors", arguments.run_folder / "model.sig"
    try:
        verify_model(weights, signature, arguments.public_key)
    except DamagedFileError as error:
        return emit(arguments, {"holds": False, "why": str(error)}, f"DOES NOT HOLD: {error}", ok=False)
    return emit(arguments, {"holds": True}, f"HOLDS: {weights} is what was signed. Only a watermark shows its origin.")


def _checking_options(command: argparse.ArgumentParser) -> None:
    """Add what the checker can give: roots, challenge, public key, the owner's key, the suspect."""
    add = command.add_argument
    add("bundle", type=Path, help="folder that `indelible evidence claim` wrote")
    add(
        "--roots", type=Path,
        help="root certificates of the timestamp authority (PEM), from a source of your own; without them the date is "
        "not established",
    )  # fmt: skip
    add("--challenge", help="challenge that you set; without it, the claimant could foresee the questions")
    add("--public-key", help="the owner's public key, if you know it (64 hexadecimal digits)")
    add("--key", type=Path, help="the owner's key, shown under seal: check the derivation too")
    add("--data", help="carriers: needed with --key; codebook: the images you brought")
    add("--run", dest="shown_run", type=Path, help="the owner's run, instead of --key and --data")
    model = "that of --run; required without --run"
    options.asking_options(command, unless="do not ask again", model=model, log=False, budget=False)


def _check(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.cli.terminal import describe_check
    from indelible.evidence import check_bundle

    roots = None if arguments.roots is None else content_of(arguments.roots)
    checked = check_bundle(
        arguments.bundle, roots=roots, challenge=arguments.challenge, public_key=arguments.public_key,
        **_shown(arguments),
    )  # fmt: skip
    document, text = checked.to_json(), describe_check(checked)
    if arguments.action == "show" and arguments.html is not None:
        from indelible.report.bundle_page import write_page

        write_page(arguments.bundle, checked, arguments.html)
        document, text = {**document, "page": str(arguments.html)}, f"{text}\nwrote {arguments.html}"
    owned = checked.holds and checked.claim is not None and checked.claim["verdict"]["owned"]
    return emit(arguments, document, text, ok=owned)


def _shown(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what an expert may look into besides the bundle: the key under seal, the suspect itself."""
    found: dict[str, Any] = {}
    run: indelible.Run | None = None
    if arguments.shown_run is not None:
        if arguments.key is not None:
            raise InputError("--run holds a key itself: leave out --key.")
        arguments.run_folder = arguments.shown_run
        run, key, carriers = owners(arguments)
        found = {"key": key, "carriers": carriers}
    elif arguments.key is not None:
        alone = arguments.key.is_dir() and indelible.Key.load(arguments.key).labels == "codebook"
        if arguments.data is None and not alone:
            raise InputError("--key needs --data: the carriers that the samples were drawn on.")
        found = {"key": indelible.Key.load(arguments.key)}
    if arguments.data is not None and arguments.shown_run is None:
        found["carriers"] = indelible.load(arguments.data)[1]
    if arguments.suspect is not None:
        found["suspect"] = _suspect(arguments, run)
    return found


def _suspect(arguments: argparse.Namespace, run: "indelible.Run | None") -> "Suspect | None":
    """Open the suspect as the commitment wants it asked; None if that is damaged, which the check will say."""
    from indelible.evidence import Commitment
    from indelible.evidence.bundle import check_place

    check_place(arguments.bundle)
    try:
        stated = Commitment.load(arguments.bundle).key
    except DamagedFileError:
        return None
    return asked_suspect(arguments, int(stated["classes"]), tuple(stated["shape"]), run)
