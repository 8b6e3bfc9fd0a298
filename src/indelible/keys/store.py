"""A key on disk: a folder with ``key.json`` (public) and ``secret.key`` (mode 0600).

Some have ``pool.safetensors`` (images of an unrelated mark) or ``fingerprint.safetensors`` (stored queries) too.

``key.json`` carries the digest. A key that was altered, or put together from parts of two keys, is refused on loading.
"""

import hmac
from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.files import read_json, read_tensors, write_json, write_tensors, write_text
from indelible.keys.derive import SECRET_BYTES, check_secret
from indelible.keys.key import Key
from indelible.keys.rules import VERSIONS
from indelible.keys.samples import Fingerprint

_PUBLIC, _SECRET, _POOL, _FINGERPRINT = "key.json", "secret.key", "pool.safetensors", "fingerprint.safetensors"


def save_key(key: Key, folder: str | Path) -> Path:
    """Write ``key`` into ``folder``; a different key that is there already is not overwritten.

    A fingerprint takes the place of the key with whose secret it was begun.
    """
    place = Path(folder)
    if (
        (place / _PUBLIC).exists()
        and (there := load_key(place)) != key
        and not (key.fingerprint is not None and there.pool is None and hmac.compare_digest(key.secret, there.secret))
    ):
        raise InputError(f"{place} holds another key already. Choose another folder: a lost key cannot be made again.")
    # The public file is written last: a folder without it is not a key, so a broken save leaves nothing half-valid.
    write_text(place / _SECRET, key.secret.hex() + "\n", mode=0o600)
    if key.pool is not None:
        write_tensors(place / _POOL, {"pool": key.pool})
    if key.fingerprint is not None:
        key.fingerprint.save(place / _FINGERPRINT)
    write_json(place / _PUBLIC, {**key.public(), "digest": key.digest})
    return place


def load_key(folder: str | Path) -> Key:
    """Read a key and check it against its digest."""
    place = Path(folder)
    if not (place / _PUBLIC).is_file():
        raise DamagedFileError(f"{place} is not a key: it has no {_PUBLIC}. Make one with `indelible key create`.")
    public = read_json(place / _PUBLIC)
    if not isinstance(public, dict):
        raise DamagedFileError(f"{place / _PUBLIC} is not a key: no JSON object. Restore it from a copy.")
    try:
        key = _rebuild(public, _read_secret(place / _SECRET), place)
        intact = hmac.compare_digest(str(public.pop("digest")), key.digest) and public == key.public()
    except (KeyError, TypeError, ValueError, OverflowError, InputError) as error:
        raise DamagedFileError(f"{place / _PUBLIC} is not a key that this version reads ({error}).") from error
    if not intact:
        raise DamagedFileError(
            f"the key in {place} does not match its digest: a file was altered or belongs to another key. "
            "Restore the whole folder from a copy."
        )
    return key


def _rebuild(public: dict[str, Any], secret: bytes, place: Path) -> Key:
    labels = public.get("labels", "fixed")
    if public["version"] != VERSIONS.get(labels):
        raise DamagedFileError(
            f"{place} holds a key of version {public['version']} with {labels!s:.20} labels, this package reads "
            f"version {VERSIONS.get(labels)} of them. Use the package that made it, or make a new key and embed that."
        )
    pool = None
    if public["pool"] is not None:
        tensors, _ = read_tensors(place / _POOL)
        pool = tensors["pool"]
    stored = Fingerprint.load(place / _FINGERPRINT) if "fingerprint" in public else None
    return Key.of(public, secret, pool=pool, fingerprint=stored)


def _read_secret(path: Path) -> bytes:
    try:
        return check_secret(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path} is missing: without its secret a key cannot be used. Restore it.") from error
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path} is not a secret of {SECRET_BYTES} bytes in hexadecimal.") from error
