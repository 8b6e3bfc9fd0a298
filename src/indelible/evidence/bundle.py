"""The bundle: a folder of known files, every byte of which is covered.

``manifest.json`` holds the SHA-256 of every other file and is signed. Whoever holds the owner's signing key can change
a file and sign anew: a file is evidence only if other steps of the check find that, too (docs/evidence.md).
"""

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_bytes
from indelible.evidence.canonical import canonical, parse_document, require
from indelible.evidence.commitment import SIGNATURE, STATEMENT
from indelible.evidence.signing import Identity
from indelible.evidence.timestamp import REPLY, ROOTS

CLAIM, IMAGES, LOG, README = "claim.json", "images.safetensors", "queries.jsonl", "README.txt"
MANIFEST, MANIFEST_SIGNATURE = "manifest.json", "manifest.sig"
_FORMAT = 1
_LARGEST = 1 << 30
_WORD = "the claimant's word"
_EVIDENCE = {
    STATEMENT: "what the owner committed to",
    SIGNATURE: "the owner's signature of the commitment",
    CLAIM: f"challenge, opened samples, suspect, verdict; when the claim was made is {_WORD}",
    IMAGES: "the opened samples and their carriers",
    LOG: f"the answers as the claimant recorded them; their times are {_WORD}",
    MANIFEST: "the digest of every other file",
    MANIFEST_SIGNATURE: "the owner's signature of the manifest",
}
_DATED = "the authority's answer, checked with the roots that you gave"
_NO_EVIDENCE = {
    REPLY: "the authority's answer: evidence only under root certificates of your own (--roots)",
    ROOTS: "root certificates of the claimant's choice: get those of the authority from a source of your own",
    README: "words for people: whoever holds the owner's signing key can write others",
}
_REQUIRED = {*_EVIDENCE, README}

TEXT = """Evidence that a model carries a committed watermark.

Check it offline, without any secret:  indelible evidence check FOLDER --roots AUTHORITY.pem
Look at it:                            indelible evidence show FOLDER --html page.html
Take the root certificates of the timestamp authority from a source of your own, not from this folder.

Signatures and the timestamp show who signed, when the commitment existed at the latest, and that nothing was changed.
Only the watermark links the suspect to the committed model. The answers are the claimant's record of them: ask the
suspect again with --suspect to see for yourself.

This text and authority.pem are no evidence: the claimant could have written others. The check says which files are.
"""


@dataclass(frozen=True, kw_only=True)
class BundleFile:
    """A file of a bundle: its name, whether it is evidence, and what it is."""

    name: str
    evidence: bool
    says: str


def described_files(names: Iterable[str], *, dated: bool) -> tuple[BundleFile, ...]:
    """Say of each file whether it is evidence; ``dated`` if the timestamp holds under roots that the checker gave."""
    evidence = {**_EVIDENCE, **({REPLY: _DATED} if dated else {})}
    known = {**_NO_EVIDENCE, **evidence}
    found = [BundleFile(name=name, evidence=name in evidence, says=known[name]) for name in names]
    return tuple(sorted(found, key=lambda one: (not one.evidence, list(known).index(one.name))))


def check_place(folder: str | Path) -> None:
    """Refuse a path at which no bundle can be, so that a typing error does not look like forged evidence."""
    place = Path(folder)
    if place.is_file():
        archive = zipfile.is_zipfile(place)
        remedy = "Unpack it, and give the folder." if archive else "Give the folder that holds the files of the bundle."
        raise InputError(f"a bundle is a folder, but {place} is {'a zip archive' if archive else 'a file'}. {remedy}")
    if not place.is_dir():
        raise InputError(f"there is no bundle {place}. Give the folder that `indelible evidence claim` wrote.")
    if any((place / name).exists() for name in (CLAIM, MANIFEST)):
        return
    inside = sorted(one.name for one in place.iterdir() if (one / MANIFEST).is_file())
    if inside:
        raise InputError(f"{place} is not a bundle, but {inside[0]} in it may be: give {place / inside[0]}.")
    what = "holds a commitment, not a bundle" if (place / STATEMENT).exists() else "is not a bundle"
    raise InputError(f"{place} {what}. Give the folder that `indelible evidence claim` wrote.")


def write_bundle(folder: str | Path, files: Mapping[str, bytes], identity: Identity) -> None:
    """Write a bundle; the signature of the manifest comes last, so that a broken attempt is not one."""
    place = Path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{place} exists and is not an empty folder. Choose another one for the bundle.")
    content = {**files, README: TEXT.encode()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    manifest = canonical({"format": _FORMAT, "files": digests})
    for name, data in content.items():
        write_bytes(place / name, data)
    write_bytes(place / MANIFEST, manifest)
    write_bytes(place / MANIFEST_SIGNATURE, identity.sign("manifest", manifest))


def read_files(folder: str | Path) -> dict[str, bytes]:
    """Read a bundle's files, once; refuse a file that is missing, unknown, too large, or no plain file."""
    place = Path(folder)
    check_place(place)
    found: dict[str, bytes] = {}
    for entry in sorted(os.scandir(place), key=lambda one: one.name):
        known, state = entry.name in {*_EVIDENCE, *_NO_EVIDENCE}, entry.stat(follow_symlinks=False)
        require(known, f"the file {entry.name!r:.80} does not belong to a bundle")
        plain = stat.S_ISREG(state.st_mode) and state.st_size <= _LARGEST
        require(plain, f"{entry.name} is not a plain file of at most {_LARGEST >> 20} MiB")
        found[entry.name] = Path(entry.path).read_bytes()
    missing = sorted(_REQUIRED - found.keys())
    if missing:
        raise DamagedFileError(f"the file {missing[0]} is missing")
    return found


def check_manifest(files: Mapping[str, bytes]) -> None:
    """Compare every file with the manifest."""
    listed = parse_document(files[MANIFEST], MANIFEST, _FORMAT, {"files": dict})["files"]
    present = files.keys() - {MANIFEST, MANIFEST_SIGNATURE}
    odd = sorted(present ^ listed.keys())
    if odd:
        raise DamagedFileError(f"{MANIFEST} and the folder do not agree on {odd[0]!r:.80}")
    for name in sorted(present):
        same = listed[name] == hashlib.sha256(files[name]).hexdigest()
        require(same, f"{name} is not the file that was signed: its digest is another one")
