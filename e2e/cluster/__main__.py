"""`python -m e2e.cluster up|down|status|kubeconfig|build`."""

from __future__ import annotations

import argparse
import sys
import time

from . import binaries, providers
from .errors import ClusterError
from .files import Progress
from .state import check_name, known_names


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("--name", default="ebb", help="which cluster (default: %(default)s)")
    named.add_argument("--provider", choices=providers.PROVIDERS, help="default: what fits this machine")
    up = commands.add_parser("up", parents=[named], help="start the cluster, or find it running")
    up.add_argument("--context", help="--provider existing: the context of your kubeconfig, by name")
    down = commands.add_parser("down", parents=[named], help="take it away; nothing is left")
    down.add_argument("--all", action="store_true", help="every cluster there is")
    commands.add_parser("status", parents=[named], help="every cluster and whether it runs")
    commands.add_parser("kubeconfig", parents=[named], help="print the path of the admin's kubeconfig")
    build = commands.add_parser("build", help="build the programs only")
    build.add_argument("flavour", choices=sorted(binaries.PROGRAMS))
    return top


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what was begun is cleared by the next up or down", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    progress = _progress()
    if options.command == "build":
        print(binaries.ensure(options.flavour, progress))
    elif options.command == "up":
        providers.up(options.name, options.provider, progress, context=options.context)
    elif options.command == "down":
        for name in known_names() if options.all else [options.name]:
            providers.down(name, progress)
    elif options.command == "kubeconfig":
        print(providers.get_cluster(options.name, options.provider).kubeconfig)
    else:
        return _status(check_name(options.name))
    return 0


def _status(name: str) -> int:
    """Prints every cluster; the status says whether the named one runs."""
    running = False
    for known, state, runs in providers.statuses():
        print(f"{known}\t{state.provider}\t{'running' if runs else 'not running: up or down clears it'}")
        running |= known == name and runs
    if not running:
        print(f"{name} is not running")
    return 0 if running else 1


def _progress() -> Progress:
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {line}", file=sys.stderr, flush=True)

    return tell


if __name__ == "__main__":
    sys.exit(main())
