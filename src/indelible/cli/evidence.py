"""``indelible evidence``: commit before release, stamp, claim, and check a claim offline."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from indelible.cli.checking import check, checking_options
from indelible.cli.options import content_of, emit
from indelible.cli.suspects import asked_suspect, asking_options

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

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
_ACTIONS = ("commit", "timestamp", "claim", "check", "show", "sign", "verify-model")


def configure(command: argparse.ArgumentParser) -> None:
    """Add the options of ``indelible evidence``."""
    from indelible.cli import common

    actions = command.add_subparsers(dest="action", required=True, metavar="|".join(_ACTIONS))
    made = {
        "commit": actions.add_parser("commit", help="fix a key's samples, test and level, signed, before release"),
        "timestamp": actions.add_parser("timestamp", help="have an authority date the commitment (RFC 3161)"),
        "claim": actions.add_parser("claim", help="open samples, ask a suspect, write a bundle (exit 1: not shown)"),
        "check": actions.add_parser("check", help="check a bundle offline (exit code 1 if it does not hold)"),
        "show": actions.add_parser("show", help="check a bundle and tell what is in it; --html writes a page"),
        "sign": actions.add_parser("sign", help="sign a run's weights in the OpenSSF format"),
        "verify-model": actions.add_parser("verify-model", help="check a run's weights against such a signature"),
    }
    _owner_options(made["commit"], made["timestamp"], made["claim"])
    checking_options(made["check"], made["show"])
    made["show"].add_argument("--html", type=Path, help="write a self-contained page")
    made["sign"].add_argument("run_folder", type=Path, metavar="RUN")
    made["sign"].add_argument("--key", type=Path, required=True, help="elliptic-curve private key (PEM)")
    made["verify-model"].add_argument("run_folder", type=Path, metavar="RUN")
    made["verify-model"].add_argument("--public-key", type=Path, required=True, help="its public key (PEM)")
    for action in made.values():
        common(action)


def _owner_options(
    commit: argparse.ArgumentParser, timestamp: argparse.ArgumentParser, claim: argparse.ArgumentParser
) -> None:
    commit.add_argument("run_folder", type=Path, metavar="RUN", help="the run that embedded the watermark")
    commit.add_argument("--out", type=Path, required=True, help="folder of the commitment; its identity.pem is secret")
    commit.add_argument("--alpha", type=float, default=1e-6, help="level of a claim (default: 1e-6)")
    commit.add_argument(
        "--samples", type=int, help="samples to commit to (default: all the test images give; codebook: as in verify)"
    )
    commit.add_argument(
        "--claims", type=int, default=1,
        help="1: a claim opens everything and can be made again against others (default); N: so many claims, each with "
        "samples or marks of its own, share alpha",
    )  # fmt: skip
    commit.add_argument(
        "--open", type=int, metavar="N", help="samples, or marks of a codebook, that each claim opens (default: all)"
    )
    commit.add_argument("--owner", default="", help="who commits: a name for people")
    timestamp.add_argument("commitment", type=Path)
    timestamp.add_argument("--url", help="address of an authority; without it, the request is only written")
    timestamp.add_argument("--attach", type=Path, metavar="TSR", help="an authority's answer that was fetched by hand")
    timestamp.add_argument("--roots", type=Path, help="root certificates to check the answer with (PEM)")
    claim.add_argument("commitment", type=Path)
    claim.add_argument("run_folder", type=Path, metavar="RUN", help="the owner's run: key, data, architecture")
    claim.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    claim.add_argument("--challenge", help="the auditor's: any text that you could not foresee")
    for command in (commit, claim):
        command.add_argument("--identity", type=Path, help="Ed25519 signing key (default: identity.pem of the folder)")
        command.add_argument("--data", help="carriers (default: the run's test images)")
    asking_options(claim, unless=None, log=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    known: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "commit": _commit, "timestamp": _timestamp, "claim": _claim, "check": check, "show": check, "sign": _sign,
        "verify-model": _verify_model,
    }  # fmt: skip
    return known[arguments.action](arguments)


def _commit(arguments: argparse.Namespace) -> int:
    from indelible.base.files import tensor_digest
    from indelible.cli.making import owners
    from indelible.evidence import Identity, commit
    from indelible.evidence.redrawing import AUDITOR

    saved, key, test = owners(arguments)
    made = commit(
        key, test, arguments.out, alpha=arguments.alpha, samples=arguments.samples, claims=arguments.claims,
        opens=arguments.open, owner=arguments.owner,
        model=tensor_digest(saved.model().state_dict()), purpose="embed" if key.labels == "keyed" else "verify",
        identity=None if arguments.identity is None else Identity.load(arguments.identity),
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
    emit(arguments, {"commitment": str(arguments.out), "digest": made.digest, "public_key": made.public_key}, text)
    return 0


def _timestamp(arguments: argparse.Namespace) -> int:
    from indelible.base.errors import InputError
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
            emit(arguments, {"request": str(place)}, text)
            return 0
        reply = send_request(request, arguments.url)
    stamp = attach_timestamp(content, reply, content_of(arguments.roots), arguments.commitment)
    emit(arguments, {"time": stamp.time, "authority": stamp.authority}, f"dated {stamp.time} by {stamp.authority}")
    return 0


def _claim(arguments: argparse.Namespace) -> int:
    from indelible.cli.making import owners
    from indelible.evidence import Identity, claim

    saved, key, test = owners(arguments)
    suspect = asked_suspect(arguments, key.classes, key.shape, saved)
    verdict = claim(
        arguments.commitment, key, test, suspect, arguments.out, challenge=arguments.challenge,
        budget=arguments.budget,
        identity=None if arguments.identity is None else Identity.load(arguments.identity),
    )  # fmt: skip
    word = "OWNED" if verdict["owned"] else "NOT SHOWN"
    text = f"{word} at alpha {verdict['alpha']:g}, {verdict['queries']} queries\n{verdict['sentence']}\n"
    emit(arguments, {"bundle": str(arguments.out), "verdict": verdict}, f"{text}the bundle is in {arguments.out}")
    return 0 if verdict["owned"] else 1


def _sign(arguments: argparse.Namespace) -> int:
    from indelible.evidence.signing import sign_model

    signature = sign_model(
        arguments.run_folder / "model.safetensors", arguments.run_folder / "model.sig", arguments.key
    )  # fmt: skip
    emit(arguments, {"signature": str(signature)}, f"wrote {signature}. It shows integrity, not descent.")
    return 0


def _verify_model(arguments: argparse.Namespace) -> int:
    from indelible.base.errors import DamagedFileError
    from indelible.evidence.signing import verify_model

    weights, signature = arguments.run_folder / "model.safetensors", arguments.run_folder / "model.sig"
    try:
        verify_model(weights, signature, arguments.public_key)
    except DamagedFileError as error:
        emit(arguments, {"holds": False, "why": str(error)}, f"DOES NOT HOLD: {error}")
        return 1
    emit(arguments, {"holds": True}, f"HOLDS: {weights} is what was signed. Descent takes a watermark.")
    return 0
