"""`make demo`: a scale-down under streaming load, live; and what becomes of streams without a drain window."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from controller.cli.text import render_retirement_line
from e2e.cluster import Cluster, down, up
from e2e.demo.report import Moment, Outcome, table, timeline
from e2e.harness.install import NAMESPACE as EBB_NAMESPACE
from e2e.harness.install import install_api, install_controller
from e2e.harness.objects import MODEL, model_deployment
from e2e.harness.reach import reach_router
from e2e.harness.scope import Scope
from e2e.images import build
from e2e.load import Load, Tally, void_reasons

CLUSTER = "ebb-demo"
NAMESPACE = "ebb-demo"
IMAGES = ("sample-engine", "vllm-router")
CLIENTS = 20
STREAM_SECONDS = (5.0, 22.0)
CONTROL_SECONDS = 60.0
PULSE_SECONDS = 5.0
"""A line at least this often, so that a wait is seen to be one."""
EDIT_SECONDS = 120.0
"""How long the edit waits for enough long streams on the target."""

TAKE_OVER = ["vllm", "serve", MODEL, "--served-model-name", MODEL, "--host", "0.0.0.0", "--port", "8000"]


def say(text: str = "") -> None:
    print(text, flush=True)


async def run_demo(cluster: Cluster) -> int:
    """The whole demo on a running cluster; returns the exit code."""
    scope = Scope(cluster, NAMESPACE, user=f"system:serviceaccount:{EBB_NAMESPACE}:ebb-controller")
    await asyncio.to_thread(prepare, scope)
    say("two engines behind vllm-router, and two more that have no drain window for the contrast")
    await asyncio.to_thread(scope.apply, model_deployment("chat", namespace=NAMESPACE))
    await asyncio.to_thread(scope.apply, model_deployment("contrast", namespace=NAMESPACE, command=TAKE_OVER))
    for name in ("chat", "contrast"):
        await asyncio.to_thread(scope.wait_ready, name)
        await asyncio.to_thread(scope.wait_workers, name, 2)
    outcomes: list[Outcome] = []
    reasons: list[str] = []
    moments, retired, control, evidence = await retire(scope)
    outcomes += [control, retired]
    outcomes.append(await plain_delete(scope, "chat", "kubectl delete pod, with the drain window"))
    contrast = await plain_delete(scope, "contrast", "kubectl delete pod, without it")
    outcomes.append(contrast)
    reasons = void_reasons(**evidence, control_failed=control.cut + control.failed, contrast_cut=contrast.cut)
    say("\nThe scale-down, seconds from the edit:\n")
    say(timeline(moments))
    say("\nWhat became of the streams that were open or began meanwhile:\n")
    say(table(outcomes))
    lost = sum(outcome.cut + outcome.failed for outcome in outcomes[1:3])
    if reasons:
        say("\nThis run proves nothing: " + "; ".join(reasons))
        return 1
    if lost:
        say(f"\n{lost} streams were lost that should not have been.")
        return 1
    say("\nNo stream was cut by the protocol or by the drain window.")
    return 0


def prepare(scope: Scope) -> None:
    """Images onto the node, Ebb into the cluster as a user installs it, a namespace of the demo's own."""
    for name in IMAGES:
        scope.cluster.load_image(build(name, progress=say).archive)
    say("installing the CRD, the permissions and the controller from manifests/")
    install_api(scope.cluster)
    install_controller(scope.cluster, progress=say)
    scope.create()


async def retire(scope: Scope) -> tuple[list[Moment], Outcome, Outcome, dict[str, Any]]:
    """A control minute, then 2 → 1 once enough long streams run on the replica that is going to leave."""
    target = "chat-server-r1-m0"
    async with under_load(scope, "chat") as load:
        say(f"\n{CLIENTS} clients stream; a minute without any removal first")
        began = time.monotonic()
        await asyncio.sleep(CONTROL_SECONDS)
        minute = (began, time.monotonic())
        say("waiting for at least 5 streams on the replica that will leave, 2 of them with 14 s to go")
        until = time.monotonic() + EDIT_SECONDS
        while not (load.open_on(target) >= 5 and load.open_on(target, min_left=14.0) >= 2):
            if time.monotonic() > until:
                raise AssertionError(f"the load put too few long streams on {target} in {EDIT_SECONDS:g} s")
            await asyncio.sleep(0.05)
        edited = time.monotonic()
        open_at_edit = load.open_on(target)
        await asyncio.to_thread(scope.scale, "chat", 1)
        say(f"\nreplicas 2 → 1 with {open_at_edit} streams open on {target}:\n")
        moments = [Moment(0.0, f"replicas: 1 ({open_at_edit} streams open on {target})")]
        into_draining = await watch(scope, load, target, edited, moments)
        await load.stop(drain=True)
        # Counted at the very end, so that what was still open at the end of its span has come to its own.
        control = outcome("a minute without a removal", load.tally(since=minute[0], until=minute[1]))
        retired = outcome("retirement protocol (replicas 2 → 1)", load.tally(since=edited))
        evidence = {
            "distinct_prompts": load.distinct_prompts,
            "open_at_edit": open_at_edit,
            "seconds_into_draining": into_draining,
        }
    return moments, retired, control, evidence


async def watch(scope: Scope, load: Load, target: str, edited: float, moments: list[Moment]) -> float:
    """Print a line per state and figure until the operation is over and its Pod is gone.

    Returns how many seconds into `Draining` a stream on the target was last seen open.
    """
    shown: tuple[Any, ...] = ()
    state, draining_since, into_draining = "", None, 0.0
    why = ""
    while True:
        deployment = await asyncio.to_thread(scope.deployment, "chat")
        retirement = (deployment.get("status") or {}).get("retirement")
        now = time.monotonic()
        line = render_retirement_line(deployment, datetime.now(UTC))
        facts = retirement or {}
        key = (
            facts.get("state"),
            facts.get("inFlight"),
            facts.get("reason"),
            int((now - edited) / PULSE_SECONDS),
        )
        if retirement and key != shown:
            shown = key
            say(f"  {now - edited:6.1f} s  {line}")
        if retirement and retirement["state"] != state:
            state, why = retirement["state"], retirement["reason"]
            moments.append(Moment(now - edited, f"{state:<13} {why}"))
            if state == "Draining":
                draining_since = now
        if draining_since is not None and load.open_on(target):
            into_draining = now - draining_since
        if state and not retirement:
            moments.append(Moment(now - edited, "retired; the record is cleared"))
            say(f"  {now - edited:6.1f} s  retired")
            return into_draining
        if state == "Aborted":
            raise AssertionError(f"the retirement was aborted: {why}")
        if now - edited > 400:
            raise AssertionError("the retirement did not end within its budget")
        await asyncio.sleep(0.2)


async def plain_delete(scope: Scope, name: str, way: str) -> Outcome:
    """`kubectl delete pod` on a replica with open streams; what it ran before must have ended, or was cut."""
    target = f"{name}-server-r1-m0"
    await asyncio.to_thread(scope.scale, name, 2)
    await asyncio.to_thread(scope.wait_ready, name)
    await asyncio.to_thread(scope.wait_workers, name, 2)
    async with under_load(scope, name) as load:
        until = time.monotonic() + EDIT_SECONDS
        while load.open_on(target) < 5 or load.open_on(target, min_left=5.0) < 3:
            if time.monotonic() > until:
                raise AssertionError(f"the load put too few streams on {target} in {EDIT_SECONDS:g} s")
            await asyncio.sleep(0.05)
        deleted = time.monotonic()
        say(f"\nkubectl delete pod {target} with {load.open_on(target)} streams open on it")
        await asyncio.to_thread(scope.kubectl, "delete", "pod", target, "--wait=false")
        await asyncio.sleep(10.0)
        await load.stop(drain=True)
        return outcome(way, load.tally(since=deleted))


@asynccontextmanager
async def under_load(scope: Scope, name: str) -> AsyncIterator[Load]:
    """The clients at work on a deployment's router."""
    with ExitStack() as way_in:
        url = await asyncio.to_thread(way_in.enter_context, reach_router(scope, name))
        async with Load() as load:
            load.start(url, clients=CLIENTS, seconds_range=STREAM_SECONDS, model=MODEL)
            yield load


def outcome(way: str, tally: Tally) -> Outcome:
    return Outcome(way, started=tally.started, finished=tally.finished, cut=tally.cut, failed=tally.failed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("command", choices=("run", "down"), nargs="?", default="run")
    parser.add_argument("--provider", choices=("kind", "local", "existing"), default=None)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    options = parser.parse_args(arguments)
    if options.command == "down":
        down(CLUSTER, progress=say)
        return 0
    began = time.monotonic()
    # Whoever ends the demo by a signal gets the machine back as it was, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster = up(CLUSTER, options.provider, progress=say)
        code = asyncio.run(run_demo(cluster))
    except KeyboardInterrupt:
        say("\ninterrupted")
        code = 130
    finally:
        if not options.keep:
            down(CLUSTER, progress=say)
    say(f"\n{time.monotonic() - began:.0f} s in all")
    return code


if __name__ == "__main__":
    sys.exit(main())
