"""``indelible evidence check`` and ``show``: the same check, in the terminal or as a page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indelible.cli.options import content_of, emit
from indelible.cli.suspects import asked_suspect, asking_options

if TYPE_CHECKING:
    from indelible.train.run import Run
    from indelible.verify import Suspect

__all__ = ["check", "checking_options"]


def checking_options(*commands: argparse.ArgumentParser) -> None:
    """Add what the checker can give: roots, challenge, public key, the owner's key, the suspect."""
    for command in commands:
        command.add_argument("bundle", type=Path, help="folder that `indelible evidence claim` wrote")
        command.add_argument(
            "--roots", type=Path,
            help="root certificates of the timestamp authority (PEM), from a source of your own; without them the "
            "date is not established",
        )  # fmt: skip
        command.add_argument(
            "--challenge", help="the challenge that you had set; without it, the claimant could foresee the questions"
        )
        command.add_argument("--public-key", help="the owner's public key, if you know it (64 hexadecimal digits)")
        command.add_argument("--key", type=Path, help="the owner's key, shown under seal: check the derivation too")
        command.add_argument("--data", help="carriers: needed with --key; codebook: the images you brought")
        command.add_argument(
            "--run", dest="shown_run", type=Path, help="instead, the owner's run: keyed labels take its images"
        )
        asking_options(
            command, unless="nobody is asked again", model="that of --run; else it must be given", log=False,
            budget=False,
        )  # fmt: skip


def check(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from indelible.cli.describe import describe_check
    from indelible.evidence import check_bundle

    roots = None if arguments.roots is None else content_of(arguments.roots)
    checked = check_bundle(
        arguments.bundle, roots=roots, challenge=arguments.challenge, public_key=arguments.public_key,
        **_shown(arguments),
    )  # fmt: skip
    document, text = checked.to_json(), describe_check(checked)
    if arguments.action == "show" and arguments.html is not None:
        from indelible.report.bundle import write_page

        write_page(arguments.bundle, checked, arguments.html)
        document, text = {**document, "page": str(arguments.html)}, f"{text}\nwrote {arguments.html}"
    emit(arguments, document, text)
    return 0 if checked.holds and checked.claim is not None and checked.claim["verdict"]["owned"] else 1


def _shown(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what an expert may look into besides the bundle: the key under seal, the suspect itself."""
    from indelible.base.errors import InputError
    from indelible.cli.making import owners
    from indelible.data import load
    from indelible.keys import Key

    found: dict[str, Any] = {}
    run: Run | None = None
    if arguments.shown_run is not None:
        if arguments.key is not None:
            raise InputError("--run holds a key itself: leave out --key.")
        arguments.run_folder = arguments.shown_run
        run, key, carriers = owners(arguments)
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


def _suspect(arguments: argparse.Namespace, run: "Run | None") -> "Suspect | None":
    """Open the suspect as the commitment wants it asked; None if that is damaged, which the check will say."""
    from indelible.base.errors import DamagedFileError
    from indelible.evidence import Commitment
    from indelible.evidence.bundle import check_place

    check_place(arguments.bundle)
    try:
        stated = Commitment.load(arguments.bundle).key
    except DamagedFileError:
        return None
    return asked_suspect(arguments, int(stated["classes"]), tuple(stated["shape"]), run)
