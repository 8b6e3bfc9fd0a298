"""A private timestamp authority: certificates made here, answers by ``openssl ts``."""

import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["OPENSSL", "Authority"]

OPENSSL = shutil.which("openssl")
_CONFIG = """
[tsa]
default_tsa = tsa_config
[tsa_config]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.3.6.1.4.1.99999.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_chain = no
ess_cert_id_alg = sha256
"""


@dataclass
class Authority:
    """Root and signer; ``days`` until the signer's certificate ends, negative for one that has ended."""

    folder: Path
    name: str = "Test Authority"
    days: int = 30

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        root_key, signer_key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        now = datetime.now(UTC)
        root_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{self.name} Root")])
        root = (
            x509.CertificateBuilder().subject_name(root_name).issuer_name(root_name).public_key(root_key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=400))
            .not_valid_after(now + timedelta(days=400))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
            .sign(root_key, hashes.SHA256())
        )  # fmt: skip
        signer = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])).issuer_name(root_name)
            .public_key(signer_key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=300)).not_valid_after(now + timedelta(days=self.days))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
            .sign(root_key, hashes.SHA256())
        )  # fmt: skip
        (self.folder / "root.pem").write_bytes(root.public_bytes(Encoding.PEM))
        (self.folder / "tsa.pem").write_bytes(signer.public_bytes(Encoding.PEM))
        (self.folder / "tsa.key").write_bytes(
            signer_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        (self.folder / "serial").write_text("01\n")
        (self.folder / "ts.cnf").write_text(_CONFIG.format(folder=self.folder))

    @property
    def roots(self) -> bytes:
        return (self.folder / "root.pem").read_bytes()

    def answer(self, request: bytes) -> bytes:
        asked, answered = self.folder / "request.tsq", self.folder / "reply.tsr"
        asked.write_bytes(request)
        assert OPENSSL is not None
        subprocess.run(
            [OPENSSL, "ts", "-reply", "-config", self.folder / "ts.cnf", "-section", "tsa_config", "-queryfile", asked,
             "-out", answered],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip
        return answered.read_bytes()
