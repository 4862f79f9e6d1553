"""Identities from a kubeconfig or a service account, against a real TLS server."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_asyncio.client import Configuration

from controller.cluster.client import ApiError, NoAnswerError
from controller.cluster.credentials import REFRESH_SECONDS, Credentials, CredentialsError, load_credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.server_time import ServerTime
from unit.cluster.authority import Authority
from unit.cluster.raw_server import Request, raw_server, response, status_body


async def _answer(request: Request, writer: asyncio.StreamWriter) -> None:
    certificate = writer.get_extra_info("peercert")
    writer.write(response({"token": request.headers.get("authorization"), "certificate": bool(certificate)}))


def write_kubeconfig(path: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


async def asked(found: Credentials) -> Any:
    async with HttpClient(found, server_time=ServerTime()) as client:
        return (await client.request("GET", "/version")).body


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("form", ["files", "relative files", "data"])
async def test_a_client_certificate_is_an_identity(tmp_path: Path, form: str) -> None:
    """Client certificate, key and authority work as absolute files, relative files and inline data."""
    authority = Authority(tmp_path)
    crt, key = authority.issue("client")
    if form == "data":
        cluster = {"certificate-authority-data": data(authority.file)}
        user = {"client-certificate-data": data(crt), "client-key-data": data(key)}
    else:
        name = str if form == "files" else (lambda path: path.name)
        cluster = {"certificate-authority": name(authority.file)}
        user = {"client-certificate": name(crt), "client-key": name(key)}
    async with raw_server(_answer, tls=authority.server_context("server", clients=True)) as server:
        kubeconfig = write_kubeconfig(
            tmp_path / "config", cluster={"server": server.url, **cluster}, user=user
        )
        found = await load_credentials(kubeconfig=kubeconfig)
        assert await asked(found) == {"token": None, "certificate": True}


async def test_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    """A server whose certificate another authority signed gets no request."""
    ours, theirs = Authority(tmp_path, name="ours"), Authority(tmp_path, name="theirs")
    async with raw_server(_answer, tls=theirs.server_context("server")) as server:
        cluster = {"server": server.url, "certificate-authority": str(ours.file)}
        kubeconfig = write_kubeconfig(tmp_path / "config", cluster=cluster, user={"token": "abc"})
        with pytest.raises(NoAnswerError, match="certificate"):
            await asked(await load_credentials(kubeconfig=kubeconfig))
    assert server.requests == []


@pytest.mark.parametrize("options", [{"insecure-skip-tls-verify": True}, {"tls-server-name": "api.test"}])
async def test_tls_options_of_the_kubeconfig_hold(tmp_path: Path, options: dict[str, Any]) -> None:
    """Skipping verification and another server name are honoured."""
    authority = Authority(tmp_path)
    async with raw_server(_answer, tls=authority.server_context("server")) as server:
        cluster: dict[str, Any] = {"server": server.url.replace("127.0.0.1", "localhost"), **options}
        if "tls-server-name" in options:
            cluster["certificate-authority"] = str(authority.file)
        kubeconfig = write_kubeconfig(tmp_path / "config", cluster=cluster, user={"token": "abc"})
        assert (await asked(await load_credentials(kubeconfig=kubeconfig)))["token"] == "Bearer abc"


async def test_basic_authentication_is_an_identity(tmp_path: Path) -> None:
    """User name and password become a Basic header."""
    async with raw_server(_answer) as server:
        user = {"username": "u", "password": "p"}
        kubeconfig = write_kubeconfig(tmp_path / "config", cluster={"server": server.url}, user=user)
        found = await asked(await load_credentials(kubeconfig=kubeconfig))
    assert found["token"] == "Basic " + base64.b64encode(b"u:p").decode()


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    """A token file named by the kubeconfig is read again after a minute, without a restart."""
    time = Time()
    token = tmp_path / "token"
    token.write_text("first\n")
    kubeconfig = write_kubeconfig(
        tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user={"tokenFile": str(token)}
    )
    found = await load_credentials(kubeconfig=kubeconfig, monotonic=time)
    assert await found.authorization() == "Bearer first"
    token.write_text("second\n")
    assert await found.authorization() == "Bearer first"
    time.now += REFRESH_SECONDS
    assert await found.authorization() == "Bearer second"


async def test_a_new_authority_is_trusted_without_a_restart(tmp_path: Path) -> None:
    """When the authority's file changes, servers of the new authority are believed within a minute."""
    time = Time()
    old, new = Authority(tmp_path, name="old"), Authority(tmp_path, name="new")
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(old.certificate)
    async with raw_server(_answer, tls=new.server_context("server")) as server:
        cluster = {"server": server.url, "certificate-authority": str(trusted)}
        kubeconfig = write_kubeconfig(tmp_path / "config", cluster=cluster, user={"token": "abc"})
        found = await load_credentials(kubeconfig=kubeconfig, monotonic=time)
        async with HttpClient(found, server_time=ServerTime()) as client:
            with pytest.raises(NoAnswerError, match="certificate"):
                await client.request("GET", "/version")
            trusted.write_bytes(old.certificate + new.certificate)
            time.now += REFRESH_SECONDS
            assert (await client.request("GET", "/version")).status == 200


PLUGIN = """
import json, pathlib, sys
count = pathlib.Path(sys.argv[1])
n = int(count.read_text()) + 1
count.write_text(str(n))
status = {"token": f"token-{n}"}
if sys.argv[3:]:
    status["expirationTimestamp"] = sys.argv[3]
print(json.dumps({"apiVersion": sys.argv[2], "kind": "ExecCredential", "status": status}))
"""


def plugin_config(tmp_path: Path, *, server: str, expiry: str | None = None) -> Path:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    (tmp_path / "count").write_text("0")
    version = "client.authentication.k8s.io/v1"
    arguments = [str(tmp_path / "plugin.py"), str(tmp_path / "count"), version, *([expiry] if expiry else [])]
    user = {
        "exec": {
            "apiVersion": version,
            "command": sys.executable,
            "args": arguments,
            "interactiveMode": "Never",
        }
    }
    return write_kubeconfig(tmp_path / "config", cluster={"server": server}, user=user)


@pytest.mark.parametrize("expiry", [None, "2999-01-01T00:00:00Z"])
async def test_a_plugin_runs_again_when_its_token_is_rejected(tmp_path: Path, expiry: str | None) -> None:
    """A plugin's token that has not expired is kept until a 401; then the plugin runs again, once."""
    time = Time()

    accepted = {"Bearer token-1"}

    async def revoking(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.headers["authorization"] in accepted:
            writer.write(response({}))
        else:
            writer.write(response(status_body(401, "Unauthorized", "no"), status="401 Unauthorized"))

    async with raw_server(revoking) as server:
        found = await load_credentials(
            kubeconfig=plugin_config(tmp_path, server=server.url, expiry=expiry), monotonic=time
        )
        async with HttpClient(found, server_time=ServerTime()) as client:
            await client.request("GET", "/version")
            time.now += 3600
            await client.request("GET", "/version")
            assert (tmp_path / "count").read_text() == "1"
            accepted.clear()
            accepted.add("Bearer token-2")
            time.now += 60
            await client.request("GET", "/version")
            assert (tmp_path / "count").read_text() == "2"
            accepted.clear()
            for _ in range(5):
                with pytest.raises(ApiError):
                    await client.request("GET", "/version")
    assert (tmp_path / "count").read_text() == "2", "a plugin is not run for every 401 of one moment"


async def test_a_plugins_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    """A plugin's token whose expiry has come is replaced before a call is made with it."""
    time = Time()
    kubeconfig = plugin_config(tmp_path, server="http://127.0.0.1:1", expiry="2020-01-01T00:00:00Z")
    found = await load_credentials(kubeconfig=kubeconfig, monotonic=time)
    assert await found.authorization() == "Bearer token-1"
    time.now += REFRESH_SECONDS
    assert await found.authorization() == "Bearer token-2"


async def test_a_plugin_that_fails_is_named(tmp_path: Path) -> None:
    """A plugin that fails is an error that repeats what it said."""
    kubeconfig = plugin_config(tmp_path, server="http://127.0.0.1:1")
    (tmp_path / "count").write_text("not a number")
    with pytest.raises(CredentialsError, match="invalid literal for int"):
        await load_credentials(kubeconfig=kubeconfig)


async def test_a_service_account_is_used_inside_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a Pod the service account is the identity; its token ends without a newline in the header."""
    authority = Authority(tmp_path)
    (tmp_path / "token").write_text("in-cluster\n")
    prefix = "kubernetes_asyncio.config.incluster_config"
    monkeypatch.setattr(f"{prefix}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{prefix}.SERVICE_CERT_FILENAME", str(authority.file))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    async with raw_server(_answer, tls=authority.server_context("server")) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        found = await load_credentials()
        assert (await asked(found))["token"] == "Bearer in-cluster"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be used"),
        ("", "cannot be used"),
        ("apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\n", "current-context"),
        ("{not yaml", "cannot be used"),
    ],
)
async def test_an_unusable_kubeconfig_is_named(tmp_path: Path, content: str | None, sentence: str) -> None:
    """A kubeconfig that is absent, empty, incomplete or no YAML is named in one sentence."""
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsError, match=sentence) as caught:
        await load_credentials(kubeconfig=path)
    assert str(path) in str(caught.value)


async def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    """A context that the kubeconfig does not have is named."""
    kubeconfig = write_kubeconfig(tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user={})
    with pytest.raises(CredentialsError, match="nowhere"):
        await load_credentials(kubeconfig=kubeconfig, context="nowhere")


def test_unreadable_certificates_are_named(tmp_path: Path) -> None:
    """An authority file that holds no certificate is named with the server."""
    configuration = Configuration()
    configuration.host = "https://api.test"
    configuration.ssl_ca_cert = str(tmp_path / "ca.crt")
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(CredentialsError, match=r"https://api\.test"):
        Credentials(configuration)


async def test_the_environment_sets_no_proxy_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxy variables and a netrc file in the environment change nothing."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with raw_server(_answer) as server:
        kubeconfig = write_kubeconfig(tmp_path / "config", cluster={"server": server.url}, user={})
        assert await asked(await load_credentials(kubeconfig=kubeconfig)) == {
            "token": None,
            "certificate": False,
        }
    assert os.environ["HTTP_PROXY"]
