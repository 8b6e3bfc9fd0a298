"""OpenSSF signatures of a model's weights: right, and with one bit flipped."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from indelible.base.errors import DamagedFileError, InputError
from indelible.cli import main
from indelible.evidence.signing import sign_model, verify_model

pytest.importorskip("model_signing")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "ec.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "ec-pub.pem").write_bytes(public)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(bytes(range(256)) * 8)
    return tmp_path / "run"


def test_sign_and_verify(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evidence", "verify-model", str(run), "--public-key", str(run.parent / "ec-pub.pem"), "--json"]
    assert main(["evidence", "sign", str(run), "--key", str(run.parent / "ec.pem"), "--json"]) == 0
    capsys.readouterr()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == {"holds": True}
    weights = bytearray((run / "model.safetensors").read_bytes())
    weights[100] ^= 1
    (run / "model.safetensors").write_bytes(weights)
    assert main(words) == 1
    assert not json.loads(capsys.readouterr().out)["holds"]


def test_refused(run: Path) -> None:
    weights, signature = run / "model.safetensors", run / "model.sig"
    with pytest.raises(InputError, match="there is no"):
        sign_model(weights, signature, run / "none.pem")
    with pytest.raises(InputError, match="cannot sign"):
        sign_model(weights, signature, weights)
    signature.write_bytes(b"{}")
    with pytest.raises(DamagedFileError, match="is not what"):
        verify_model(weights, signature, run.parent / "ec-pub.pem")
