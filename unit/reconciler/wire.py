"""The client seam of one controller process, with a recorder on it and a place for a test to stand in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from apis.v1alpha1 import labels
from controller.cluster.client import ApiError, Client, NoAnswerError, Response
from controller.cluster.resources import DEPLOYMENTS, MODEL_DEPLOYMENTS, PODS, SERVICES
from controller.cluster.store import Raw, version_of
from unit.cluster.virtual_clock import VirtualClock
from unit.invariants import ApiWrite

VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
WATCHED: Final = frozenset(r.plural for r in (MODEL_DEPLOYMENTS, PODS, SERVICES, DEPLOYMENTS))


@dataclass(frozen=True, slots=True)
class Call:
    """A request about to be sent. The verb of a list is `get`, too; its name is empty."""

    verb: str
    namespace: str
    resource: str
    name: str
    subresource: str
    body: Any

    @classmethod
    def of(cls, method: str, path: str, body: Any) -> Call:
        parts = path.strip("/").split("/")
        parts = parts[2 if parts[0] == "api" else 3 :]
        namespace = ""
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name, subresource = [*parts, "", "", ""][:3]
        if method == "POST" and not name:
            name = str(body["metadata"].get("name", ""))
        return cls(VERBS[method], namespace, resource, name, subresource, body)

    @property
    def writes(self) -> bool:
        return self.verb != "get"

    def is_(self, verb: str, resource: str, subresource: str = "") -> bool:
        return (self.verb, self.resource, self.subresource) == (verb, resource, subresource)

    @property
    def stores_state(self) -> str:
        """The state of the operation in a status that is written; "" for anything else."""
        if not self.is_("update", MODEL_DEPLOYMENTS.plural, "status"):
            return ""
        return str((self.body["status"].get("retirement") or {}).get("state", ""))


Send = Callable[[], Awaitable[Response]]
Between = Callable[[Call, Send], Awaitable[Response]]
"""What happens to a call: usually `await send()`, with trouble before or after it."""


@dataclass(slots=True)
class Book:
    """What was asked of the API server in one namespace, by all processes of a test."""

    writes: list[ApiWrite] = field(default_factory=list)
    calls: int = 0
    open: int = 0
    """Requests under way."""
    stirred: int = 0
    """Writes to Pods and Deployments, which is what the kubelet looks at."""
    latest: dict[str, int] = field(default_factory=dict)
    """Plural -> the newest version of an object that the controller watches."""
    gone: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """UID -> (plural, namespace, name) of watched objects that no longer exist."""

    def noted(self, call: Call, answer: Any) -> None:
        """Remember what a watch will have to tell because of this answer to a write."""
        if call.resource not in WATCHED or not isinstance(answer, dict):
            return
        metadata = answer.get("metadata") or {}
        ours = (metadata.get("labels") or {}).get(labels.MANAGED_BY) == labels.EBB
        if call.resource != MODEL_DEPLOYMENTS.plural and not ours and answer.get("kind") != "Status":
            return
        if call.verb == "delete" and not metadata.get("finalizers"):
            uid = metadata.get("uid") or (answer.get("details") or {}).get("uid")
            if uid and not metadata.get("deletionGracePeriodSeconds"):
                self.gone[uid] = (call.resource, call.namespace, call.name)
                return
        if "resourceVersion" in metadata:
            version = version_of(metadata["resourceVersion"])
            self.latest[call.resource] = max(self.latest.get(call.resource, 0), version)


async def straight(call: Call, send: Send) -> Response:
    """Nothing stands between."""
    return await send()


class Wire:
    """A Client on another one. What it carried stays in the book; `between` may be replaced at any time.

    `own`: whether it is the controller's; the rest of the cluster is played over one that is not.
    """

    def __init__(self, client: Client, book: Book, clock: VirtualClock, *, own: bool = True) -> None:
        self.between: Between = straight
        self.dead = False
        self._client = client
        self._book = book
        self._clock = clock
        self._own = own
        self._under_way: set[asyncio.Task[Response]] = set()

    async def die(self) -> Response:
        """As if the process had been killed here: nothing that it awaits comes back any more."""
        self.dead = True
        never: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        return await never

    async def drained(self) -> None:
        """Wait until everything that was sent has had its effect."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = 10.0,
    ) -> Response:
        if self.dead:
            return await self.die()
        call = Call.of(method, path, body)

        arrived = False

        async def carry() -> Response:
            try:
                response = await self._client.request(
                    method, path, query=query, body=body, content_type=content_type, timeout=timeout
                )
            except ApiError as error:
                self._record(call, error.status, {})
                raise
            self._record(call, response.status, response.body)
            return response

        async def send() -> Response:
            nonlocal arrived
            arrived = True
            # What has left the process arrives, though the process may be killed before the answer does.
            carrying = asyncio.create_task(carry())
            self._under_way.add(carrying)
            carrying.add_done_callback(self._under_way.discard)
            return await asyncio.shield(carrying)

        self._book.open += 1
        self._book.calls += self._own
        try:
            return await self.between(call, send)
        except (ApiError, NoAnswerError) as error:
            if not arrived:
                self._record(call, error.status if isinstance(error, ApiError) else 0, {})
            raise
        finally:
            self._book.open -= 1

    def _record(self, call: Call, code: int, answer: Raw) -> None:
        if not call.writes:
            return
        self._book.stirred += call.resource in (PODS.plural, DEPLOYMENTS.plural)
        self._book.noted(call, answer)
        self._book.writes.append(
            ApiWrite(
                verb=call.verb,
                resource=call.resource,
                namespace=call.namespace,
                name=call.name,
                subresource=call.subresource,
                body=call.body or {},
                answer=answer,
                code=code,
                at=self._clock.now().latest,
                own=self._own,
            )
        )

    async def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._client.stream_lines(path, query=query, inactivity=inactivity)) as lines:
            async for line in lines:
                yield line

    def exec_channels(
        self, *, namespace: str, pod: str, container: str, argv: Sequence[str], timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, bytes]]]:
        raise AssertionError(f"an exec in {pod}: engines are scripted here")
