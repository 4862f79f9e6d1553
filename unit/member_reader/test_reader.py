"""Reading members through a scripted API server: what is asked, what is believed, how many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError, Client, NoAnswerError, Response
from controller.member_reader.preflight import MemberTarget
from controller.member_reader.reader import MemberReaders
from controller.member_reader.verdict import Reading, Verdict
from unit.cluster.virtual_clock import VirtualClock
from unit.member_reader.pods import TARGET, pod

IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n#end\n"
BUSY = IDLE.replace(b"running 0", b"running 3")
SUCCESS = orjson.dumps({"status": "Success"})

Channels = Sequence[tuple[int, bytes]]


def printed(text: bytes, *, status: bytes = SUCCESS, stderr: bytes = b"") -> Channels:
    """The channels of a process that printed `text`, in pieces that respect neither lines nor characters."""
    pieces = [(1, text[at : at + 5]) for at in range(0, len(text), 5)]
    return [*([(2, stderr)] if stderr else []), *pieces, *([(3, status)] if status else [])]


@dataclass
class ScriptedApi:
    """Answers GETs of Pods and execs; the hooks of a test change what it says meanwhile."""

    pods: dict[str, dict[str, Any]] = field(default_factory=lambda: {TARGET.name: pod()})
    output: Channels = field(default_factory=lambda: printed(IDLE))
    during_exec: Callable[[], None] = lambda: None
    refuse_exec: Exception | None = None
    stall: asyncio.Event | None = None
    gets: int = 0
    execs: list[dict[str, Any]] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    most: int = 0

    async def request(self, method: str, path: str, **options: Any) -> Response:
        assert method == "GET"
        self.gets += 1
        name = path.rpartition("/")[2]
        if name not in self.pods:
            raise ApiError(status=404, reason="NotFound", message=f'pods "{name}" not found')
        return Response(200, self.pods[name])

    def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        raise AssertionError("a reader watches nothing")

    @asynccontextmanager
    async def exec_channels(self, **request: Any) -> AsyncGenerator[AsyncIterator[tuple[int, bytes]], None]:
        self.execs.append(request)
        if self.refuse_exec is not None:
            raise self.refuse_exec
        self.running.append(request["pod"])
        self.most = max(self.most, len(self.running))
        try:
            yield self._channels()
        finally:
            self.running.remove(request["pod"])

    async def _channels(self) -> AsyncIterator[tuple[int, bytes]]:
        self.during_exec()
        if self.stall is not None:
            await self.stall.wait()
        for message in self.output:
            yield message


@dataclass
class Bench:
    api: ScriptedApi
    clock: VirtualClock
    readers: MemberReaders

    async def read(self, target: MemberTarget = TARGET, *, timeout: float = 5.0) -> Reading:
        return await self.readers.read(target, timeout=timeout)


@pytest.fixture
def bench() -> Bench:
    api, clock = ScriptedApi(), VirtualClock()
    client: Client = api
    return Bench(api, clock, MemberReaders(client=client, clock=clock))


async def test_idle(bench: Bench) -> None:
    """G9 Nothing changed: Idle and complete, after exactly one exec between two looks at the Pod."""
    reading = await bench.read()
    assert (reading.verdict, reading.complete, reading.in_flight) == (Verdict.IDLE, True, 0.0)
    assert (len(bench.api.execs), bench.api.gets) == (1, 2)
    assert reading.container_id == TARGET.container_id
    assert reading.started_at == reading.finished_at == bench.clock.now()


async def test_the_request(bench: Bench) -> None:
    """G15 The exec goes to `main` by name, with the rendered URL and gauges, and what stderr says does not count."""
    bench.api.output = printed(BUSY, stderr=IDLE)
    reading = await bench.read()
    assert (reading.verdict, reading.reason) == (Verdict.BUSY, "the engine holds 3 in flight")
    request = bench.api.execs[0]
    assert (request["namespace"], request["pod"], request["container"]) == (
        TARGET.namespace,
        TARGET.name,
        "main",
    )
    assert request["argv"][:2] == ["python3", "-c"]
    assert request["argv"][3:] == [
        "http://127.0.0.1:8000/metrics",
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
    ]
    assert request["timeout"] <= 5.0


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"command": ["vllm", "serve", "m", "--data-parallel-external-lb"]}, TARGET),
        ({"annotations": {labels.SCRAPE_PORT: None}}, TARGET),
        ({"container": {"restartCount": 1}}, TARGET),
        ({"container": {"containerID": "containerd://other"}}, TARGET),
        ({"container": {"state": {"waiting": {}}}}, TARGET),
        ({"metadata": {"uid": "other"}}, TARGET),
        ({"metadata": {"ownerReferences": []}}, TARGET),
        ({}, replace(TARGET, uid="")),
        ({}, replace(TARGET, engine="Custom")),
        ({}, replace(TARGET, name="gone")),
    ],
)
async def test_refused_before_any_exec(bench: Bench, changes: dict[str, Any], target: MemberTarget) -> None:
    """G4 G10 G11 What the Pod itself refuses costs zero execs."""
    bench.api.pods[TARGET.name] = pod(**changes)
    reading = await bench.read(target)
    assert reading.verdict in (Verdict.UNKNOWN, Verdict.UNSUPPORTED)
    assert bench.api.execs == []
    assert reading.container_id == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"container": {"restartCount": 1}}, "restarted once"),
        ({"metadata": {"uid": "other"}}, "now carries uid other"),
        ({"status": {"podIP": "10.9.9.9"}}, "changed its ip"),
        ({"metadata": {"labels": {labels.COMPONENT: "other"}}}, "changed its role"),
        ({"metadata": {"ownerReferences": []}}, "owned by no ModelDeployment"),
        ({"annotations": {labels.SCRAPE_PORT: "8001"}}, "changed its scrape"),
        ({"container": {"containerID": "containerd://other"}}, "another one"),
        ({"container": {"state": {"terminated": {}}}}, "terminated rather than running"),
        ({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}, "terminating"),
        (None, "went away"),
    ],
)
async def test_changed_while_it_was_read(bench: Bench, changes: dict[str, Any] | None, says: str) -> None:
    """G9 A Pod that is not the same after the exec as before discards the reading; the reason says what changed."""

    def change() -> None:
        if changes is None:
            del bench.api.pods[TARGET.name]
        else:
            bench.api.pods[TARGET.name] = pod(**changes)

    bench.api.during_exec = change
    reading = await bench.read()
    assert (reading.verdict, reading.complete) == (Verdict.UNKNOWN, False)
    assert says in reading.reason
    assert reading.reason.endswith("while it was read")
    assert len(bench.api.execs) == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ApiError(status=403, reason="Forbidden", message="pods/exec is forbidden"),
            "pods/exec is forbidden",
        ),
        (NoAnswerError("exec: connection reset"), "connection reset"),
    ],
)
async def test_exec_fails(bench: Bench, error: Exception, says: str) -> None:
    """G5 G19 An exec that is forbidden or breaks is Unknown with the text, after one exec."""
    bench.api.refuse_exec = error
    reading = await bench.read()
    assert reading.verdict is Verdict.UNKNOWN
    assert says in reading.reason
    assert len(bench.api.execs) == 1


FAILED = orjson.dumps(
    {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": "command terminated with exit code 7",
        "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
    }
)
NOT_STARTED = orjson.dumps(
    {"status": "Failure", "message": 'exec: "python3": executable file not found in $PATH'}
)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (printed(IDLE, status=FAILED, stderr=b"Traceback\nMemoryError\n"), "exit code 7; MemoryError"),
        (printed(b"", status=NOT_STARTED), "executable file not found"),
        (printed(IDLE, status=b""), "without a status"),
        (printed(IDLE[:-4]), "cut short"),
        (printed(b"<html>\n#end\n"), "unreadable"),
        (printed(b"#end\n"), "the engine served no vllm:num_requests_running"),
        (printed(b"#error ConnectionRefusedError: [Errno 111]\n#end\n"), "Errno 111"),
        (printed(b"x" * (3 * 1024 * 1024)), "bytes on stdout"),
    ],
)
async def test_no_answer_of_worth(bench: Bench, output: Channels, says: str) -> None:
    """G5 G19 A process that failed, did not start, left no status or printed too much or too little: Unknown."""
    bench.api.output = output
    reading = await bench.read()
    assert (reading.verdict, reading.complete) == (Verdict.UNKNOWN, False)
    assert says in reading.reason


async def test_exec_never_answers(bench: Bench) -> None:
    """G14 An exec that never answers ends by the reader's own bound, says where, and frees its slot."""
    bench.api.stall = asyncio.Event()
    reading = await bench.read(timeout=0.05)
    assert reading.verdict is Verdict.UNKNOWN
    assert "not read within 0.05 s: it was still running the reader in its container" in reading.reason
    assert bench.api.running == []
    bench.api.stall = None
    assert (await bench.read()).verdict is Verdict.IDLE


async def test_cancelled(bench: Bench) -> None:
    """A cancelled read is cancelled, not a reading; connection and slots are given back."""
    bench.api.stall = asyncio.Event()
    task = asyncio.create_task(bench.read())
    await bench.clock.settle()
    assert bench.api.running == [TARGET.name]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.api.running == []
    bench.api.stall = None
    assert (await bench.read()).verdict is Verdict.IDLE


async def test_suspended(bench: Bench) -> None:
    """A read during which the machine slept is Unknown: its answer may be as old as the sleep."""

    def sleep() -> None:
        bench.clock._now += 60.0

    bench.api.during_exec = sleep
    reading = await bench.read()
    assert reading.verdict is Verdict.UNKNOWN
    assert "took 60 s" in reading.reason


async def test_label_sets_between_reads(bench: Bench) -> None:
    """Label sets other than those of the read before hold once; another container is not compared."""
    assert (await bench.read()).verdict is Verdict.IDLE
    bench.api.output = printed(IDLE.replace(b"running 0", b'running{engine="1"} 0'))
    assert "other label sets" in (await bench.read()).reason
    assert (await bench.read()).verdict is Verdict.IDLE
    bench.api.output = printed(IDLE)
    bench.api.pods[TARGET.name] = pod(container={"containerID": "containerd://next"})
    assert (await bench.read(replace(TARGET, container_id="containerd://next"))).verdict is Verdict.IDLE


def members(api: ScriptedApi, count: int, *, node: str, owner: str) -> list[MemberTarget]:
    """So many members of one deployment on one node."""
    targets = []
    for number in range(count):
        target = replace(
            TARGET, name=f"{owner}-{node}-{number}", uid=f"{owner}-{node}-{number}", owner_uid=owner
        )
        owners = [{"apiVersion": labels.API_VERSION, "kind": labels.KIND, "uid": owner, "controller": True}]
        api.pods[target.name] = pod(
            metadata={"name": target.name, "uid": target.uid, "ownerReferences": owners}, node=node
        )
        targets.append(target)
    return targets


@pytest.mark.parametrize(
    ("spread", "most"),
    [
        ([("n1", "a", 6)], 4),
        ([("n1", "a", 3), ("n1", "b", 3)], 4),
        ([(f"n{number}", f"d{number}", 3) for number in range(7)], 16),
        ([("n1", "a", 2), ("n2", "a", 3)], 4),
    ],
)
async def test_limits(bench: Bench, spread: list[tuple[str, str, int]], most: int) -> None:
    """At most 4 reads run on a node, 4 for a deployment, 16 in all; the others get their turn."""
    bench.api.stall = asyncio.Event()
    targets = [
        target
        for node, owner, count in spread
        for target in members(bench.api, count, node=node, owner=owner)
    ]
    tasks = [asyncio.create_task(bench.read(target)) for target in targets]
    await bench.clock.settle()
    assert bench.api.most == most
    bench.api.stall.set()
    readings = await asyncio.gather(*tasks)
    assert {reading.verdict for reading in readings} == {Verdict.IDLE}
    assert bench.api.most == most


async def test_one_at_a_time_in_a_member(bench: Bench) -> None:
    """Never two execs at once in one member; one that waits for its turn obeys its timeout and says what for."""
    bench.api.stall = asyncio.Event()
    first = asyncio.create_task(bench.read())
    await bench.clock.settle()
    second = await bench.read(timeout=0.05)
    assert second.verdict is Verdict.UNKNOWN
    assert "waiting for the end of another read of the same member" in second.reason
    bench.api.stall.set()
    assert (await first).verdict is Verdict.IDLE
    assert (len(bench.api.execs), bench.api.most) == (1, 1)


async def test_a_held_deployment_holds_nobody_else(bench: Bench) -> None:
    """Members of one deployment that hang take none of another deployment's slots elsewhere."""
    bench.api.stall = asyncio.Event()
    hanging = [
        asyncio.create_task(bench.read(target)) for target in members(bench.api, 12, node="n1", owner="stuck")
    ]
    await bench.clock.settle()
    bench.api.stall = None
    (other,) = members(bench.api, 1, node="n2", owner="quick")
    assert (await bench.read(other)).verdict is Verdict.IDLE
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
