"""Certificates and kubeconfigs."""

from __future__ import annotations

import base64
import ipaddress
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from e2e.cluster.pki import Authority, identity_file, signing_request


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


def test_a_client_certificate_carries_user_and_groups(authority: Authority) -> None:
    """Kubernetes reads the common name as user and each organization as group; the authority signed it."""
    pair = authority.client("ebb-controller", ["one", "two"])
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert [name.value for name in names] == ["ebb-controller"]
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [name.value for name in organizations] == ["one", "two"]
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate(authority.certificate_file.read_bytes())
    )


def test_a_server_certificate_is_for_its_addresses(authority: Authority) -> None:
    """Clients that connect by address find it among the alternative names."""
    pair = authority.server("kube-apiserver", ["127.0.0.1", "10.96.0.1"], ["kubernetes"])
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("10.96.0.1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes"]


def test_a_kubeconfig_stands_alone(authority: Authority, tmp_path: Path) -> None:
    """Certificate, key and authority are inside, and nobody else may read the file."""
    pair = authority.client("me")
    path = authority.kubeconfig(
        tmp_path / "some" / "me.kubeconfig", server="https://x:6443", cluster="ebb", user="me", pair=pair
    )
    config = json.loads(path.read_text())
    user = config["users"][0]["user"]
    assert base64.b64decode(user["client-key-data"]) == pair.key
    assert base64.b64decode(user["client-certificate-data"]) == pair.certificate
    assert config["clusters"][0]["cluster"]["server"] == "https://x:6443"
    assert config["current-context"] == config["contexts"][0]["name"]
    assert path.stat().st_mode & 0o077 == 0


def test_identities_do_not_share_a_file() -> None:
    """User names that look alike as file names, and the same user in other groups, have files of their own."""
    files = {
        identity_file(Path("/i"), user, groups)
        for user, groups in [("a:b", ()), ("a-b", ()), ("a-b", ("g",)), ("a-b", ("g", "h")), ("a/../b", ())]
    }
    assert len(files) == 5
    assert {path.parent for path in files} == {Path("/i")}


def test_a_signing_request_names_user_and_groups() -> None:
    """A cluster whose authority is not ours gets a request with the same subject a certificate would have."""
    request = x509.load_pem_x509_csr(signing_request("me", ["g"]).certificate)
    assert request.is_signature_valid
    assert request.subject.rfc4514_string() == "CN=me,O=g"
