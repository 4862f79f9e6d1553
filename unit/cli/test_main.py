"""The commands as a person calls them, against a scripted API server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from controller.cli.main import app
from unit.cli.objects import at, deployment, pod, retirement, stamp

DEPLOYMENTS = "/apis/ebb.dev/v1alpha1/namespaces/prod/modeldeployments"
ALL_DEPLOYMENTS = "/apis/ebb.dev/v1alpha1/modeldeployments"
PODS = "/api/v1/namespaces/prod/pods"
ALL_PODS = "/api/v1/pods"


class ApiServer:
    """Answers GETs by path with (status, body); everything else is a Kubernetes 404. Its clock stands at `now`."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.now = at(11)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                split = urlsplit(self.path)
                owner.asked.append((split.path, parse_qs(split.query)))
                status, body = owner.answers.get(split.path, (404, failure(404, "NotFound", "no such path")))
                payload = json.dumps(body).encode()
                self.send_response_only(status)
                self.send_header("Date", format_datetime(owner.now, usegmt=True))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


@pytest.fixture
def api() -> Iterator[ApiServer]:
    api = ApiServer()
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield api
    api.server.shutdown()
    api.server.server_close()
    thread.join()


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "prod"}},
        {"name": "elsewhere", "context": {"cluster": "c", "user": "u"}},
    ]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": contexts,
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def draining(api: ApiServer) -> ApiServer:
    """prod/chat with server/1 in Draining."""
    operation = retirement("Draining", phase_started=7, inFlight=3, lastReadAt=stamp(9))
    md = deployment(replicas=1, retirement=operation)
    pods = [pod(0), pod(1), pod(1, owner="uid-of-another", uid="other")]
    api.answers = {
        f"{DEPLOYMENTS}/chat": (200, md),
        DEPLOYMENTS: (200, {"items": [md]}),
        ALL_DEPLOYMENTS: (200, {"items": [md]}),
        PODS: (200, {"items": pods}),
        ALL_PODS: (200, {"items": pods}),
    }
    return api


def ebb(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.usefixtures("draining")
def test_status_of_one(kubeconfig: Path, api: ApiServer) -> None:
    """`ebb status NAME` asks for that deployment and its Pods in the context's namespace, and prints by the
    server's clock."""
    code, out, _ = ebb("status", "chat", "--kubeconfig", kubeconfig)
    assert code == 0
    assert "  server/1  Retiring Draining  chat-server-r1-m0  node-1  10m\n" in out
    assert "  retiring server/1: Draining, 3 in flight, read 2 s ago\n" in out
    assert [path for path, _ in api.asked] == [f"{DEPLOYMENTS}/chat", PODS]
    assert api.asked[1][1]["labelSelector"] == [
        "app.kubernetes.io/managed-by=ebb,app.kubernetes.io/instance=chat"
    ]


@pytest.mark.usefixtures("draining")
def test_why(kubeconfig: Path) -> None:
    """`ebb why NAME` prints the answer."""
    code, out, _ = ebb("why", "chat", "--kubeconfig", kubeconfig)
    assert code == 0
    assert out.startswith("prod/chat: server/1 is leaving (ReplicasReduced): Draining\n  the reason\n")
    assert "ends 12:04:07Z" in out


@pytest.mark.usefixtures("draining")
@pytest.mark.parametrize("command", [["status"], ["status", "chat"], ["why", "chat"]])
def test_everywhere(kubeconfig: Path, api: ApiServer, command: list[str]) -> None:
    """-A looks into every namespace, for one name as well as for all."""
    code, out, _ = ebb(*command, "-A", "--kubeconfig", kubeconfig)
    assert code == 0
    assert out.startswith("prod/chat")
    assert [path for path, _ in api.asked] == [ALL_DEPLOYMENTS, ALL_PODS]


@pytest.mark.usefixtures("draining")
def test_the_namespace_given_wins(kubeconfig: Path, api: ApiServer) -> None:
    """-n goes before the context's namespace; a context without one means `default`."""
    ebb("status", "chat", "-n", "other", "--kubeconfig", kubeconfig)
    ebb("status", "chat", "--context", "elsewhere", "--kubeconfig", kubeconfig)
    places = [path.split("/namespaces/")[1].split("/")[0] for path, _ in api.asked]
    assert places == ["other", "default"]


def test_a_name_that_is_not_there(kubeconfig: Path, api: ApiServer) -> None:
    """A wrong name is said to be wrong, with the namespace that was looked in."""
    missing = failure(404, "NotFound", 'modeldeployments.ebb.dev "chat" not found')
    api.answers = {f"{DEPLOYMENTS}/chat": (404, missing)}
    code, out, err = ebb("status", "chat", "--kubeconfig", kubeconfig)
    assert (code, out) == (1, "")
    assert err == "ebb: no ModelDeployment is called 'chat' in namespace 'prod'\n"


def test_a_name_that_is_nowhere(kubeconfig: Path, api: ApiServer) -> None:
    """With -A a wrong name is wrong in every namespace."""
    api.answers = {ALL_DEPLOYMENTS: (200, {"items": []})}
    code, _, err = ebb("why", "chat", "-A", "--kubeconfig", kubeconfig)
    assert (code, err) == (1, "ebb: no ModelDeployment is called 'chat' in any namespace\n")


@pytest.mark.parametrize("command", [["status"], ["why", "chat"]])
def test_a_server_without_the_crd(kubeconfig: Path, api: ApiServer, command: list[str]) -> None:
    """A server that does not know the kind is told apart from a missing object."""
    unknown = failure(404, "NotFound", "the server could not find the requested resource")
    api.answers = {DEPLOYMENTS: (404, unknown), f"{DEPLOYMENTS}/chat": (404, unknown)}
    code, _, err = ebb(*command, "--kubeconfig", kubeconfig)
    assert code == 1
    assert err.endswith("install the CRD: ebb crd | kubectl apply -f -\n")


def test_a_refusal_is_the_servers_sentence(kubeconfig: Path, api: ApiServer) -> None:
    """What the API server refuses is printed in its own words."""
    denied = failure(403, "Forbidden", 'User "eve" cannot list resource "pods"')
    api.answers = {DEPLOYMENTS: (200, {"items": []}), PODS: (403, denied)}
    code, _, err = ebb("status", "--kubeconfig", kubeconfig)
    assert (code, err) == (1, 'ebb: the API server refused: User "eve" cannot list resource "pods"\n')


def test_no_deployments(kubeconfig: Path, api: ApiServer) -> None:
    """An empty namespace is said to be empty."""
    api.answers = {DEPLOYMENTS: (200, {"items": []}), PODS: (200, {"items": []})}
    code, _, err = ebb("status", "--kubeconfig", kubeconfig)
    assert (code, err) == (1, "ebb: no ModelDeployments found\n")


def test_an_operation_of_a_newer_version(kubeconfig: Path, api: ApiServer) -> None:
    """What this version cannot read is an error that says so, not a traceback."""
    md = deployment(retirement=retirement("Hibernating"))
    api.answers = {f"{DEPLOYMENTS}/chat": (200, md), PODS: (200, {"items": []})}
    code, _, err = ebb("why", "chat", "--kubeconfig", kubeconfig)
    assert code == 1
    assert err.startswith("ebb: status.retirement of prod/chat cannot be read by this version")


def test_nobody_there(kubeconfig: Path, api: ApiServer) -> None:
    """A server that does not answer is named as such."""
    api.server.socket.close()
    code, _, err = ebb("status", "--kubeconfig", kubeconfig)
    assert code == 1
    assert err.startswith("ebb: the API server gave no answer: ")


def test_an_unknown_context(kubeconfig: Path) -> None:
    """A context that the kubeconfig does not have is named with the file."""
    code, _, err = ebb("status", "--context", "nowhere", "--kubeconfig", kubeconfig)
    assert code == 1
    assert err.startswith(f"ebb: {kubeconfig} cannot be used: ")
    assert "nowhere" in err


def test_run_refuses_settings_by_flag() -> None:
    """A setting out of range is refused with its flag before anything is connected."""
    code, _, err = ebb("run", "--workers", "0", "--log-level", "loud")
    assert code == 2
    assert err.startswith("ebb: --workers: ")
    assert "--log-level: " in err


def test_crd_prints_the_definition() -> None:
    """`ebb crd` prints what `kubectl apply -f -` takes."""
    code, out, _ = ebb("crd")
    assert code == 0
    assert "name: modeldeployments.ebb.dev" in out


def test_the_module_is_the_same_program() -> None:
    """`python -m controller` is `ebb`, under its own name."""
    shown = subprocess.run(
        [sys.executable, "-m", "controller", "--help"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("Usage: python -m controller ")
    for command in ("run", "status", "why", "crd"):
        assert f"\n  {command} " in shown.stdout


def test_the_command_line_is_light() -> None:
    """Asking for help loads none of what the commands need, so it answers at once."""
    program = "import sys, controller.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"kubernetes_asyncio", "aiohttp", "pydantic", "structlog"} & set(loaded)
