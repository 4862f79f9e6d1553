"""One certificate authority per cluster, and every key and kubeconfig that hangs from it."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .files import write_atomically

LIFETIME = timedelta(days=365)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True)
class Authority:
    """The cluster's certificate authority, kept in `folder` as ca.crt and ca.key."""

    folder: Path

    @property
    def certificate_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / "ca.key"

    @classmethod
    def create(cls, folder: Path) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ebb-test-cluster-ca")])
        certificate = (
            _builder(subject=name, issuer=name, public_key=key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder)
        _write_pair(authority.certificate_file, authority.key_file, Pair(_pem(certificate), _key_pem(key)))
        return authority

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """A client certificate: Kubernetes reads the common name as user, organizations as groups."""
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._sign(subject, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str, addresses: Sequence[str], dns_names: Sequence[str] = ()) -> Pair:
        """A serving certificate for these IP addresses and names."""
        alternatives: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(address)) for address in addresses
        ]
        alternatives += [x509.DNSName(dns_name) for dns_name in dns_names]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._sign(subject, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def write(self, stem: str, pair: Pair) -> tuple[Path, Path]:
        """Store `pair` as STEM.crt and STEM.key beside the authority; returns both paths."""
        certificate, key = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        _write_pair(certificate, key, pair)
        return certificate, key

    def kubeconfig(self, path: Path, *, server: str, cluster: str, user: str, pair: Pair) -> Path:
        """Write a kubeconfig that stands alone: everything it needs is inside it."""
        config = kubeconfig(
            server=server, cluster=cluster, user=user, authority=self.certificate_file.read_bytes(), pair=pair
        )
        write_atomically(path, json.dumps(config, indent=1), mode=0o600)
        return path

    def _sign(
        self, subject: x509.Name, purpose: x509.ObjectIdentifier, alternatives: Sequence[x509.GeneralName]
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer, issuer_key = self._issuer
        builder = (
            _builder(subject=subject, issuer=issuer, public_key=key.public_key())
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return Pair(_pem(builder.sign(issuer_key, hashes.SHA256())), _key_pem(key))

    @cached_property
    def _issuer(self) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
        certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        key = serialization.load_pem_private_key(self.key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return certificate.subject, key


def service_account_key(folder: Path) -> tuple[Path, Path]:
    """A fresh key for service account tokens: (private, public) files."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    private_file, public_file = folder / "sa.key", folder / "sa.pub"
    _write_pair(public_file, private_file, Pair(public, _key_pem(key)))
    return private_file, public_file


def signing_request(user: str, groups: Sequence[str]) -> Pair:
    """A certificate signing request (as `certificate`) and its key, for a cluster whose authority is not ours."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return Pair(request.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def kubeconfig(*, server: str, cluster: str, user: str, authority: bytes, pair: Pair) -> dict[str, Any]:
    """The kubeconfig document; JSON is YAML, so every client reads it."""

    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": cluster,
                "cluster": {"server": server, "certificate-authority-data": encoded(authority)},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": encoded(pair.certificate),
                    "client-key-data": encoded(pair.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }


def identity_file(folder: Path, user: str, groups: Sequence[str]) -> Path:
    """Where the kubeconfig of `user` in `groups` is kept: readable, and distinct for distinct identities."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", user).strip("-") or "user"
    digest = hashlib.sha256("\0".join([user, *groups]).encode()).hexdigest()[:8]
    return folder / f"{readable}-{digest}.kubeconfig"


def _builder(
    *, subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_pair(certificate_file: Path, key_file: Path, pair: Pair) -> None:
    write_atomically(certificate_file, pair.certificate.decode())
    write_atomically(key_file, pair.key.decode(), mode=0o600)
