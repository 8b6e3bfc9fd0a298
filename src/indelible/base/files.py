"""Files that are written whole or not at all.

Every writer puts the bytes into a temporary file beside the target, syncs it, and renames it. A full disk, a killed
process or a power cut leaves the old file or the new one. Weights are safetensors, everything else is JSON; nothing
here can execute what it reads.
"""

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from indelible.base.errors import DamagedFileError, StorageError


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the file system's refusals while writing to ``path`` into :class:`StorageError`."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        number = getattr(error, "errno", None)
        if number == errno.ENOSPC or "No space left" in str(error):
            text = f"cannot write {path}: the disk is full. Free some space and run the command again."
        elif number in {errno.EACCES, errno.EPERM, errno.EROFS}:
            text = f"cannot write {path}: permission denied. Choose another folder."
        else:
            text = f"cannot write {path}: {error}"
        raise StorageError(text) from error


@contextlib.contextmanager
def replacing(path: str | Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary path; when the block ends well, it replaces ``path`` in one step.

    The folder is created, and ``mode`` is set before anything is written. If the file system refuses, the previous
    file is untouched.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
            os.close(handle)
            temporary = Path(name)
            temporary.chmod(mode)
            yield temporary
            # A writer may have replaced the temporary file itself, and with it its permissions.
            temporary.chmod(mode)
            _sync(temporary)
            temporary.replace(target)
            _sync(target.parent)
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_bytes(path: str | Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write ``content`` to ``path``, whole or not at all."""
    with replacing(path, mode=mode) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | Path, content: str, *, mode: int = 0o644) -> None:
    """Write ``content`` as UTF-8 to ``path``, whole or not at all."""
    write_bytes(path, content.encode(), mode=mode)


def write_json(path: str | Path, value: Any, *, mode: int = 0o644) -> None:
    """Write ``value`` as readable JSON; NaN and infinity are refused because JSON has neither."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", mode=mode)


def canonical_json(value: Any) -> bytes:
    """Return the one byte string that stands for ``value``: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def read_json(path: str | Path) -> Any:
    """Read a JSON file; one that is missing or not JSON is a :class:`DamagedFileError`."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path} does not exist. Check the path.") from error
    except (OSError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON, a number of 5,000 digits
        raise DamagedFileError(f"{path} is not readable JSON ({error}). Restore it from a copy.") from error


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None, *, mode: int = 0o644
) -> None:
    """Write named tensors as safetensors, with ``metadata`` (anything JSON can hold) in the same file."""
    header = {"indelible": canonical_json(metadata or {}).decode()}
    # Tensors that share memory (tied weights) are cloned: safetensors refuses aliases.
    seen: set[int] = set()
    unique: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        address = plain.untyped_storage().data_ptr()
        unique[name] = plain.clone() if address in seen else plain
        seen.add(address)
    with replacing(path, mode=mode) as temporary:
        safetensors.torch.save_file(unique, temporary, metadata=header)


def read_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file, ``(tensors, metadata)``; one that is missing or not whole is a DamagedFileError."""
    try:
        with safetensors.safe_open(path, framework="pt") as handle:
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 - not a dict
            header = handle.metadata() or {}
        metadata = json.loads(header.get("indelible", "{}"))
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path} does not exist. Check the path.") from error
    except (OSError, safetensors.SafetensorError, json.JSONDecodeError, RecursionError, ValueError) as error:
        raise DamagedFileError(
            f"{path} is not a whole safetensors file ({error}). Restore it from a copy, or delete it and start again."
        ) from error
    if not isinstance(metadata, dict):
        raise DamagedFileError(f"{path} carries metadata of an unknown form. Restore it from a copy.")
    return tensors, metadata


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file as hexadecimal."""
    with Path(path).open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a SHA-256 over names, types, shapes and bytes of tensors, independent of their order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]))
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
