"""Certificates of tests: each its own authority."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(*names: x509.GeneralName, passphrase: bytes | None = None) -> tuple[bytes, bytes]:
    """Return a certificate for these names, and its key, both as PEM."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "myria test")])
    begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    sealing: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        sealing = serialization.BestAvailableEncryption(passphrase)
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), private.private_bytes(pem, serialization.PrivateFormat.PKCS8, sealing)
