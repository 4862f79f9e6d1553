"""A certificate authority for one test."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates for 127.0.0.1 and `api.test`; `folder` takes the files."""

    def __init__(self, folder: Path, *, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self.certificate)

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("api.test")]
        )
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        crt, pem = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        crt.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return crt, pem

    def server_context(self, name: str, *, clients: bool = False) -> ssl.SSLContext:
        """A server's TLS context; with `clients` it demands a client certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name))
        if clients:
            context.load_verify_locations(cafile=self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(tz=UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )
