"""Where the API server is and who we are, as kubernetes_asyncio reads it from a kubeconfig or a service
account.

Only its configuration is used, never its session (that one opens a netrc file and takes two hops through the
thread pool for each request). What it leaves to the caller is done here: fresh tokens and fresh certificates
without a restart, and one plain sentence when the configuration cannot be used.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from controller.cluster.server_time import boottime

REFRESH_SECONDS: Final = 60.0
"""How old a token or a certificate file may get before it is looked at again; kubelets rotate them hours ahead."""

REJECTED_SECONDS: Final = 5.0
"""Least time between two refreshes after a 401: a plugin that keeps failing is not run in a loop."""

PLUGIN_SECONDS: Final = 30.0
"""How long a credential plugin may run."""


SERVICE_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class CredentialsError(Exception):
    """The kubeconfig or the service account cannot be used; the message says why."""


class Credentials:
    """The server's address, the TLS context and the Authorization header of one identity."""

    def __init__(
        self, configuration: Any, *, loader: Any = None, monotonic: Callable[[], float] = boottime
    ) -> None:
        self.server: str = configuration.host.rstrip("/")
        self.proxy: str | None = configuration.proxy or None
        self.server_hostname: str | None = configuration.tls_server_name or None
        self.ssl_context: ssl.SSLContext | None = None
        self.namespace: str = _namespace(loader)
        """What a command means that names no namespace: the context's, the Pod's own, else `default`."""
        self.in_cluster: bool = loader is None
        """Whether this is the service account of the Pod that the process runs in."""
        self._configuration = configuration
        self._loader = loader
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._refreshed_at = monotonic()
        self._next_rejection = self._refreshed_at
        self._tls_files: tuple[object, ...] = ()
        if self.server.startswith("https:"):
            self.ssl_context = self._new_ssl_context()

    async def authorization(self) -> str | None:
        """The value of the Authorization header, None for an identity that is a client certificate."""
        if self._monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            async with self._lock:
                if self._monotonic() - self._refreshed_at >= REFRESH_SECONDS:
                    await self._refresh(rejected=False)
        return await self._header()

    async def after_rejection(self, rejected: str | None) -> str | None:
        """Another header after a 401 for `rejected`; None without one, so that asking again is useless."""
        async with self._lock:
            if await self._header() == rejected and self._monotonic() >= self._next_rejection:
                self._next_rejection = self._monotonic() + REJECTED_SECONDS
                await self._refresh(rejected=True)
        header = await self._header()
        return None if header == rejected else header

    async def _header(self) -> str | None:
        # Runs the configuration's own hook, which reads a service account's token file again once a minute.
        header = await self._configuration.get_api_key_with_prefix("BearerToken")
        return header.strip() if header else None

    async def _refresh(self, *, rejected: bool) -> None:
        self._refreshed_at = self._monotonic()
        if self._loader is not None:
            await self._reload(rejected=rejected)
        if self.ssl_context is not None:
            self._reload_tls(self.ssl_context)

    async def _reload(self, *, rejected: bool) -> None:
        loader = self._loader
        runs_plugin = "exec" in (loader._user or ())
        if runs_plugin:
            if rejected:
                # The loader keeps an unexpired answer; the server has just said that it is worth nothing.
                loader.__dict__.pop("exec_plugin_expiry", None)
            elif not hasattr(loader, "exec_plugin_expiry"):
                return  # valid until the server says otherwise
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                await loader.load_and_set(self._configuration)
        except TimeoutError:
            raise CredentialsError(f"the credential plugin did not end within {PLUGIN_SECONDS:g} s") from None
        except Exception as error:
            raise CredentialsError(f"the credentials could not be refreshed: {error}") from error

    def _new_ssl_context(self) -> ssl.SSLContext:
        configuration = self._configuration
        try:
            context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(f"the certificates for {self.server} cannot be read: {error}") from error
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._tls_files = self._stat_tls_files()
        return context

    def _reload_tls(self, context: ssl.SSLContext) -> None:
        """Load changed certificate files into the context that every new connection uses."""
        found = self._stat_tls_files()
        if found == self._tls_files:
            return
        configuration = self._configuration
        try:
            if configuration.ssl_ca_cert:
                context.load_verify_locations(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        except (OSError, ssl.SSLError) as error:
            raise CredentialsError(f"the new certificates for {self.server}: {error}") from error
        self._tls_files = found

    def _stat_tls_files(self) -> tuple[object, ...]:
        configuration = self._configuration
        found: list[object] = []
        for name in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
            if name:
                stat = Path(name).stat()
                found.append((name, stat.st_mtime_ns, stat.st_size))
        return tuple(found)


def _namespace(loader: Any) -> str:
    if loader is not None:
        context = (loader.current_context or {}).get("context") or {}
        return str(context.get("namespace") or "default")
    try:
        return SERVICE_ACCOUNT_NAMESPACE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


async def load_credentials(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    monotonic: Callable[[], float] = boottime,
) -> Credentials:
    """The identity to use: a named kubeconfig, else $KUBECONFIG, else the Pod's service account, else
    ~/.kube/config.

    A named context always means a kubeconfig. Raises CredentialsError.
    """
    configuration = Configuration()
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
    try:
        if kubeconfig is None and context is None and in_cluster and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return Credentials(configuration, monotonic=monotonic)
        async with asyncio.timeout(PLUGIN_SECONDS):
            loader = await config.load_kube_config(
                config_file=str(kubeconfig) if kubeconfig is not None else None,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
    except TimeoutError:
        raise CredentialsError(f"the credential plugin did not end within {PLUGIN_SECONDS:g} s") from None
    except CredentialsError:
        raise
    except Exception as error:
        where = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        raise CredentialsError(f"{where} cannot be used: {error}") from error
    return Credentials(configuration, loader=loader, monotonic=monotonic)
