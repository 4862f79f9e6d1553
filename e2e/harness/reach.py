"""A way from this machine to a router: its Pod's own address where that is routed, else a port-forward.

On the local node Pods are reached directly. With kind or somebody else's cluster they usually are not, and then the
streams go through `kubectl port-forward`, which follows one router Pod.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from controller.pod_renderer.router import API_PORT
from e2e.harness.scope import Scope

DIRECT_SECONDS = 2.0
FORWARD_SECONDS = 20.0


@contextmanager
def reach_router(scope: Scope, deployment: str, *, direct: bool | None = None) -> Iterator[str]:
    """The base URL of the router while the context lasts. `direct` forces one way; by default it is found out."""
    url = scope.router_url(deployment)
    if direct if direct is not None else _answers(url):
        yield url
        return
    command = [
        *(str(scope.cluster.kubectl_program), f"--kubeconfig={scope.cluster.kubeconfig}"),
        *("-n", scope.namespace, "port-forward", "--address=127.0.0.1"),
        *(f"service/{deployment}-router", f":{API_PORT}"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield f"http://127.0.0.1:{_forwarded_port(process)}"
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=DIRECT_SECONDS).close()
    except OSError:
        return False
    return True


def _forwarded_port(process: subprocess.Popen[str]) -> int:
    """The port that kubectl says it listens on. AssertionError with its words when it ends or says nothing."""
    assert process.stdout is not None
    until, heard = time.monotonic() + FORWARD_SECONDS, ""
    while time.monotonic() < until:
        line = process.stdout.readline()
        heard += line
        found = re.search(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
        if found:
            return int(found[1])
        if not line:
            break
    raise AssertionError(f"kubectl port-forward did not begin within {FORWARD_SECONDS:g} s: {heard.strip()}")
