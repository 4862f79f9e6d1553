"""What the reading commands ask the API server: deployments, their Pods, and its time at that moment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apis.v1alpha1 import labels
from controller.cli.report import DeploymentReport, report_deployment
from controller.cluster.client import ApiError, Client, NoAnswerError
from controller.cluster.credentials import CredentialsError, load_credentials
from controller.cluster.http_client import HttpClient
from controller.cluster.reads import list_all
from controller.cluster.resources import MODEL_DEPLOYMENTS, PODS
from controller.cluster.server_time import ServerTime


class FetchError(Exception):
    """A sentence for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster, and which of its deployments: one by `name`, or all of a namespace, or all there are.

    `namespace` None is the context's own; with `everywhere` it does not count.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    everywhere: bool = False
    name: str | None = None


async def fetch_reports(target: Target) -> list[DeploymentReport]:
    """Report what the target names, sorted by namespace and name. Raises FetchError."""
    async with _connected(target) as (client, server_time, own_namespace):
        namespace = None if target.everywhere else target.namespace or own_namespace
        try:
            deployments = await _deployments(client, namespace=namespace, name=target.name)
            selector = f"{labels.MANAGED_BY}={labels.EBB}"
            if target.name is not None:
                selector += f",{labels.INSTANCE}={target.name}"
            pods = await list_all(client, PODS.path(namespace=namespace), selector=selector)
        except ApiError as error:
            raise FetchError(_refusal(error, namespace=namespace, name=target.name)) from error
        except NoAnswerError as error:
            raise FetchError(f"the API server gave no answer: {error}") from error
        instant = server_time.now()
    now = instant.earliest + (instant.latest - instant.earliest) / 2
    by_place = sorted(deployments, key=lambda d: (d["metadata"]["namespace"], d["metadata"]["name"]))
    try:
        return [report_deployment(deployment, pods, now) for deployment in by_place]
    except ValueError as error:
        raise FetchError(str(error)) from error


@asynccontextmanager
async def _connected(target: Target) -> AsyncIterator[tuple[Client, ServerTime, str]]:
    server_time = ServerTime()
    try:
        credentials = await load_credentials(kubeconfig=target.kubeconfig, context=target.context)
        async with HttpClient(credentials, server_time=server_time) as client:
            yield client, server_time, credentials.namespace
    except CredentialsError as error:
        raise FetchError(str(error)) from error


async def _deployments(client: Client, *, namespace: str | None, name: str | None) -> list[dict[str, Any]]:
    if name is not None and namespace is not None:
        answer = await client.request("GET", MODEL_DEPLOYMENTS.path(namespace=namespace, name=name))
        return [answer.body]
    found = await list_all(client, MODEL_DEPLOYMENTS.path(namespace=namespace), selector="")
    if name is None:
        return found
    named = [deployment for deployment in found if deployment["metadata"]["name"] == name]
    if not named:
        raise FetchError(f"no ModelDeployment is called {name!r} in any namespace")
    return named


def _refusal(error: ApiError, *, namespace: str | None, name: str | None) -> str:
    # A server without our CRD answers 404 too, but names no object.
    if error.not_found and name is not None and name in error.message:
        return f"no ModelDeployment is called {name!r} in namespace {namespace!r}"
    if error.status == 404:
        return "the API server knows no ModelDeployment; install the CRD: ebb crd | kubectl apply -f -"
    return f"the API server refused: {error.message}"
