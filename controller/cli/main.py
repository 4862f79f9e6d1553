"""The command `ebb` (and `kubectl ebb`): run the controller, and ask why a replica is still here.

Commands import what they need when they run: `ebb why` must answer at once, also while the controller's own
libraries are the thing that is broken.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from controller.cli.report import DeploymentReport

app = typer.Typer(
    name="ebb",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Run LLM engines as replicas of a ModelDeployment and take them away without cutting a request.",
)

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="Kubeconfig; default $KUBECONFIG, then the Pod's service account, then ~/.kube/config.",
    ),
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; default the context's own.")
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Look into every namespace.")]


@app.command()
def run(
    *,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="The one namespace to look after; default all of them."),
    ] = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            help="Act only while holding the Lease ebb-controller; default in a cluster yes, on a kubeconfig no.",
        ),
    ] = None,
    lease_namespace: Annotated[
        str | None, typer.Option(help="Where the Lease is; default the controller's own namespace.")
    ] = None,
    bind: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where /healthz, /readyz and /metrics are served."),
    ] = ":8080",
    workers: Annotated[int, typer.Option(help="How many deployments are passed over at once.")] = 8,
    log_format: Annotated[
        str, typer.Option(metavar="auto|json|text", help="auto: text on a terminal, json elsewhere.")
    ] = "auto",
    log_level: Annotated[str, typer.Option(metavar="debug|info|warning|error")] = "info",
) -> None:
    """Run the controller until SIGTERM or SIGINT."""
    from pydantic import ValidationError

    from controller.settings import Settings

    given = {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": namespace,
        "leader_elect": leader_elect,
        "lease_namespace": lease_namespace,
        "bind": bind,
        "workers": workers,
        "log_format": log_format,
        "log_level": log_level,
    }
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        problems = [f"--{str(e['loc'][0]).replace('_', '-')}: {e['msg']}" for e in error.errors()]
        _fail("; ".join(problems), code=2)

    from controller import runtime
    from controller.cluster.client import ApiError, NoAnswerError
    from controller.cluster.credentials import CredentialsError
    from controller.cluster.leader import LeaseLostError

    try:
        runtime.run(settings)
    except (ApiError, NoAnswerError, CredentialsError, LeaseLostError) as error:
        _fail(str(error))


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="One ModelDeployment; default all of them.")] = None,
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show each replica, and how far the one that is leaving is."""
    from controller.cli.text import status_lines

    reports = _reports(
        name=name, namespace=namespace, everywhere=everywhere, kubeconfig=kubeconfig, context=context
    )
    if not reports:
        _fail("no ModelDeployments found")
    for line in status_lines(reports):
        print(line)


@app.command()
def why(
    name: Annotated[str, typer.Argument(help="The ModelDeployment.")],
    *,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Answer why a replica is still here, and until when."""
    from controller.cli.text import why_lines

    reports = _reports(
        name=name, namespace=namespace, everywhere=everywhere, kubeconfig=kubeconfig, context=context
    )
    for position, report in enumerate(reports):
        if position:
            print()
        for line in why_lines(report):
            print(line)


@app.command()
def crd() -> None:
    """Print the CustomResourceDefinition, for `kubectl apply -f -`."""
    from apis.crd import render_crd

    print(render_crd(), end="")


def main() -> None:
    """Entry point of `ebb`, `kubectl-ebb` and `python -m controller`."""
    called = Path(sys.argv[0]).name
    names = {"kubectl-ebb": "kubectl ebb", "__main__.py": "python -m controller"}
    app(prog_name=names.get(called, "ebb"))


def _reports(
    *,
    name: str | None,
    namespace: str | None,
    everywhere: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> Sequence[DeploymentReport]:
    from controller.cli.fetch import FetchError, Target, fetch_reports

    target = Target(
        kubeconfig=kubeconfig, context=context, namespace=namespace, everywhere=everywhere, name=name
    )
    try:
        return asyncio.run(fetch_reports(target))
    except FetchError as error:
        _fail(str(error))


def _fail(message: str, *, code: int = 1) -> NoReturn:
    typer.echo(f"ebb: {message}", err=True)
    raise typer.Exit(code)
