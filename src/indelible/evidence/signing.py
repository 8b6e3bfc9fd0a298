"""OpenSSF Model Signing (extra ``signing``): a detached signature over the files of a model, in a format others read.

It answers another question than the watermark: whether *these bytes* are the ones that were signed. A stolen and
fine-tuned copy has other bytes; only the watermark links it to its owner.
"""

from pathlib import Path
from typing import Any

from indelible.base.errors import DamagedFileError, InputError
from indelible.base.extras import needed

__all__ = ["sign_model", "verify_model"]


def sign_model(model: str | Path, signature: str | Path, private_key: str | Path) -> Path:
    """Sign a file or folder with an elliptic-curve key (PEM).

    Args:
        model: The file or folder: weights, not the whole run, whose key stays with the owner.
        signature: Where the signature goes.
        private_key: For example from ``openssl ecparam -name prime256v1 -genkey``.
    """
    _present(model, private_key)
    signing, hashing = _library("signing"), _library("hashing")
    target = Path(signature)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        config = signing.Config().use_elliptic_key_signer(private_key=Path(private_key))
        config.set_hashing_config(hashing.Config().set_ignored_paths(paths=[target], ignore_git_paths=True))
        config.sign(Path(model), target)
    except (ValueError, TypeError, OSError) as error:
        raise InputError(f"cannot sign {model}: {error!s:.160}") from error
    return target


def verify_model(model: str | Path, signature: str | Path, public_key: str | Path) -> None:
    """Check a model against its signature.

    Raises:
        DamagedFileError: The files or the signature are others.
    """
    _present(model, public_key, signature)
    verifying, hashing = _library("verifying"), _library("hashing")
    try:
        config = verifying.Config().use_elliptic_key_verifier(public_key=Path(public_key))
        config.set_hashing_config(hashing.Config().set_ignored_paths(paths=[Path(signature)], ignore_git_paths=True))
        config.verify(Path(model), Path(signature))
    except Exception as error:  # the library raises its own kinds, and ValueError, and what JSON raises
        raise DamagedFileError(f"{model} is not what {signature} signs: {error!s:.160}") from error


def _present(*paths: str | Path) -> None:
    for path in paths:
        if not Path(path).exists():
            raise InputError(f"there is no {path}. Check the path.")


def _library(name: str) -> Any:
    return needed(f"model_signing.{name}", extra="signing", what="an OpenSSF model signature")
