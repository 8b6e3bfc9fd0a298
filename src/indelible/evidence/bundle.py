"""The bundle: a folder of known files, every byte of which is covered.

A folder and not an archive, because archives hold more than their files (times, comments, order, padding), which no
digest of a file covers. ``manifest.json`` holds the SHA-256 of every other file and is signed; a file that is missing,
unknown or altered is found, also one that no other check looks into.

| file | what |
|---|---|
| ``commitment.json``, ``commitment.sig`` | the statement made before release, and its signature |
| ``timestamp.tsr``, ``authority.pem`` | the authority's answer, and the roots the claimant checked it with; if any |
| ``claim.json`` | challenge, opened samples or marks with salts and Merkle paths, who was asked, verdict |
| ``images.safetensors`` | the opened samples and their carriers; of a codebook, the carriers or images of the pool |
| ``queries.jsonl`` | the query log |
| ``README.txt`` | what this is, for people |
| ``manifest.json``, ``manifest.sig`` | the digest of each file above, and its signature |
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import write_bytes
from indelible.evidence.canonical import canonical, parse
from indelible.evidence.commitment import SIGNATURE, STATEMENT
from indelible.evidence.identity import Identity
from indelible.evidence.timestamp import REPLY, ROOTS

__all__ = ["CLAIM", "IMAGES", "LOG", "MANIFEST", "MANIFEST_SIGNATURE", "check_manifest", "read_files", "write_bundle"]

CLAIM, IMAGES, LOG, README = "claim.json", "images.safetensors", "queries.jsonl", "README.txt"
MANIFEST, MANIFEST_SIGNATURE = "manifest.json", "manifest.sig"
_REQUIRED = {STATEMENT, SIGNATURE, CLAIM, IMAGES, LOG, README, MANIFEST, MANIFEST_SIGNATURE}
_OPTIONAL = {REPLY, ROOTS}
_FORMAT = 1
_LARGEST = 1 << 30

TEXT = """Evidence that a model carries a committed watermark.

Check it offline, without any secret:  indelible evidence check FOLDER --roots AUTHORITY.pem
Look at it:                            indelible evidence show FOLDER --html page.html
Take the root certificates of the timestamp authority from a source of your own, not from this folder.

Signatures and the timestamp show who signed, when the commitment existed at the latest, and that nothing was changed.
Only the watermark links the suspect to the committed model. The answers are the claimant's record of them: ask the
suspect again with --suspect to see for yourself.
"""


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
    """Read a bundle's files, once; refuse anything that is not one of them.

    Raises:
        DamagedFileError: A file is missing, unknown, too large, or no plain file.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"there is no bundle {place}. Give the folder that `indelible evidence claim` wrote.")
    found: dict[str, bytes] = {}
    for entry in sorted(os.scandir(place), key=lambda one: one.name):
        if entry.name not in _REQUIRED | _OPTIONAL:
            raise DamagedFileError(f"the file {entry.name!r:.80} does not belong to a bundle")
        state = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            raise DamagedFileError(f"{entry.name} is not a plain file of at most {_LARGEST >> 20} MiB")
        found[entry.name] = Path(entry.path).read_bytes()
    missing = sorted(_REQUIRED - found.keys())
    if missing:
        raise DamagedFileError(f"the file {missing[0]} is missing")
    return found


def check_manifest(files: Mapping[str, bytes]) -> None:
    """Compare every file with the manifest.

    Raises:
        DamagedFileError: The first file that does not agree.
    """
    manifest = parse(files[MANIFEST], MANIFEST)
    listed = manifest.get("files")
    if manifest.keys() != {"format", "files"} or manifest["format"] != _FORMAT or not isinstance(listed, dict):
        raise DamagedFileError(f"{MANIFEST} is not a list of files of format {_FORMAT}")
    present = files.keys() - {MANIFEST, MANIFEST_SIGNATURE}
    odd = sorted(present ^ listed.keys())
    if odd:
        raise DamagedFileError(f"{MANIFEST} and the folder do not agree on {odd[0]!r:.80}")
    for name in sorted(present):
        if listed[name] != hashlib.sha256(files[name]).hexdigest():
            raise DamagedFileError(f"{name} is not the file that was signed: its digest is another one")
