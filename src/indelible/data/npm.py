"""Ask the user's own npm client where a package lies: its registry, mirror and proxies are the user's choice."""

import base64
import binascii
import json
import re
import shutil
import subprocess
from dataclasses import dataclass

from indelible.data.download import UnreachableError

__all__ = ["Tarball", "locate"]

_SECONDS = 60


@dataclass(frozen=True)
class Tarball:
    """Where a package's archive lies and what it must hash to, as the registry says."""

    url: str
    digests: tuple[str, ...]


def locate(package: str) -> Tarball:
    """Return address and digest of ``package`` (``name@version``).

    Raises:
        UnreachableError: There is no npm client, or it does not know the package or cannot reach its registry.
    """
    client = shutil.which("npm")
    if client is None:
        raise UnreachableError(
            f"the package {package} is asked for through npm, but no npm client is installed. Install Node.js, or "
            "choose another place with --from (see 'indelible data info')."
        )
    command = [client, "view", package, "dist", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(
            f"npm did not answer about {package} ({error}). Check 'npm ping', or choose another place with --from."
        ) from error
    try:
        answer = json.loads(done.stdout)
        url = str(answer["tarball"])
        return Tarball(url, _digests(answer))
    except (json.JSONDecodeError, KeyError, TypeError, binascii.Error) as error:
        said = done.stderr.strip().splitlines()
        reason = next((line for line in said if "error" in line.lower()), said[-1] if said else "no answer")
        raise UnreachableError(
            f"npm does not say where {package} lies ({reason}). Try 'npm view {package} dist', or choose another "
            "place with --from."
        ) from error


def _digests(answer: dict[str, object]) -> tuple[str, ...]:
    found = []
    for word in str(answer.get("integrity", "")).split():
        match = re.fullmatch(r"(sha256|sha384|sha512)-([A-Za-z0-9+/=]+)", word)
        if match:
            found.append(f"{match[1]}:{base64.b64decode(match[2], validate=True).hex()}")
    return tuple(found)
