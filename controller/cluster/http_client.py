"""The Client of a real cluster, on an aiohttp session of our own.

Three pools, because they starve one another otherwise: watches hold a connection for minutes, calls must not
wait behind them, and each exec uses up the connection that it upgrades. Every call is bounded in time, every
status is looked at, and an answer is either whole or a NoAnswerError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlencode

import aiohttp
import orjson
from yarl import URL

from controller.cluster.client import ApiError, NoAnswerError, Response
from controller.cluster.credentials import Credentials, CredentialsError
from controller.cluster.exec import MAX_FRAME_BYTES, SUBPROTOCOLS, channel_message
from controller.cluster.server_time import ServerTime, boottime

CONNECT_SECONDS: Final = 5.0
"""How long TCP and TLS may take; an API server that needs longer counts as away."""

MAX_ERROR_BYTES: Final = 64 * 1024
"""How much of a refusal's body is read: a Status is a few hundred bytes, a proxy's page can be anything."""

_LEAVE_NOW = aiohttp.ClientWSTimeout(ws_close=0.0)
_Send = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]


class Observer(Protocol):
    """Told about every answer: the HTTP method (or WATCH, EXEC), the status (0: none) and the seconds it took."""

    def __call__(self, verb: str, status: int, seconds: float) -> None: ...


def user_agent() -> str:
    """What the audit log calls us."""
    try:
        return f"ebb-controller/{version('ebb-controller')}"
    except PackageNotFoundError:
        return "ebb-controller/unknown"


class HttpClient:
    """Implements controller.cluster.client.Client; use it as an async context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        server_time: ServerTime,
        observe: Observer = lambda verb, status, seconds: None,
        monotonic: Callable[[], float] = boottime,
    ) -> None:
        self._credentials = credentials
        self._server_time = server_time
        self._observe = observe
        self._monotonic = monotonic
        self._calls = self._new_session(limit=100)
        self._watches = self._new_session(limit=0)
        self._execs = self._new_session(limit=0, force_close=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        for session in (self._calls, self._watches, self._execs):
            await session.close()

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
        """One call within `timeout` seconds, the wait for a free connection included."""
        data = None if body is None else orjson.dumps(body)
        headers = {} if data is None else {"Content-Type": content_type}
        what = f"{method} {path}"
        with _answers(what, timeout):
            async with (
                asyncio.timeout(timeout),
                self._send(self._calls, method, path, query=query, data=data, headers=headers) as response,
            ):
                payload = await response.read()
        try:
            decoded = orjson.loads(payload) if payload else None
        except orjson.JSONDecodeError as error:
            raise NoAnswerError(f"{what}: the answer is not JSON: {error}") from error
        return Response(status=response.status, body=decoded, headers=_kept_headers(response))

    async def stream_lines(
        self, path: str, *, query: Mapping[str, str], inactivity: float
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch without their newlines; the last one may be cut where the server died."""
        what = f"WATCH {path}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=inactivity)
        with _answers(what, inactivity):
            async with self._send(
                self._watches, "GET", path, query=query, headers={}, limits=limits, verb="WATCH"
            ) as response:
                rest = b""
                # Bytes are cut at newlines and never decoded before that: a character may span two chunks.
                async for chunk in response.content.iter_any():
                    *lines, tail = chunk.split(b"\n")
                    if lines:
                        lines[0], rest = rest + lines[0], tail
                        for line in lines:
                            if line:
                                yield line
                    else:
                        rest += tail
                if rest:
                    yield rest

    def exec_channels(
        self, *, namespace: str, pod: str, container: str, argv: Sequence[str], timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[tuple[int, bytes]]]:
        """See Client. `timeout` bounds everything from the connection to the last byte."""
        return self._exec_channels(
            f"/api/v1/namespaces/{namespace}/pods/{pod}/exec",
            [("container", container), ("stdout", "true"), ("stderr", "true")]
            + [("command", argument) for argument in argv],
            timeout=timeout,
        )

    @asynccontextmanager
    async def _exec_channels(
        self, path: str, query: Sequence[tuple[str, str]], *, timeout: float
    ) -> AsyncGenerator[AsyncIterator[tuple[int, bytes]], None]:
        what = f"exec {path}"
        sent = self._monotonic()
        status = 0
        try:
            with _answers(what, timeout):
                async with asyncio.timeout(timeout):
                    authorization = await self._credentials.authorization()
                    async with self._execs.ws_connect(
                        self._url(path, query),
                        protocols=SUBPROTOCOLS,
                        headers=_authorized({}, authorization),
                        proxy=self._credentials.proxy,
                        server_hostname=self._credentials.server_hostname,
                        max_msg_size=MAX_FRAME_BYTES,
                        timeout=_LEAVE_NOW,
                    ) as socket:
                        status = 101
                        if socket.protocol is None:
                            spoken = ", ".join(SUBPROTOCOLS)
                            raise NoAnswerError(f"{what}: the server speaks none of {spoken}")
                        async with aclosing(_messages(socket, what)) as messages:
                            yield messages
        except ApiError as error:
            status = error.status
            raise
        finally:
            self._observe("EXEC", status, self._monotonic() - sent)

    @asynccontextmanager
    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        data: bytes | None = None,
        limits: aiohttp.ClientTimeout | None = None,
        verb: str | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send with a fresh token; once more after a 401, which says that nothing was done."""
        url = self._url(path, list((query or {}).items()))
        authorization = await self._credentials.authorization()
        for attempt in (1, 2):
            sent = self._monotonic()
            status = 0
            try:
                async with session.request(
                    method,
                    url,
                    data=data,
                    headers=_authorized(headers, authorization),
                    allow_redirects=False,
                    proxy=self._credentials.proxy,
                    server_hostname=self._credentials.server_hostname,
                    timeout=limits or aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                ) as response:
                    status = response.status
                    yield response
                    return
            except ApiError as error:
                status = error.status
                if error.status != 401 or attempt == 2:
                    raise
                other = await self._credentials.after_rejection(authorization)
                if other is None:
                    raise
                authorization = other
            finally:
                self._observe(verb or method, status, self._monotonic() - sent)

    async def _send_once(self, request: aiohttp.ClientRequest, send: _Send) -> aiohttp.ClientResponse:
        """Note the server's time, and keep aiohttp from repeating a write after a kept connection broke.

        The first PUT or DELETE may have had its effect; the second would then be told of a conflict, which
        reads as "nothing was done".
        """
        sent = self._monotonic()
        try:
            response = await send(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if request.method == "GET":
                raise
            raise NoAnswerError(f"{request.method} {request.url.path}: {_sentence(error)}") from error
        if "Date" in response.headers:
            self._server_time.observe(response.headers["Date"], sent=sent, received=self._monotonic())
        return response

    def _url(self, path: str, query: Sequence[tuple[str, str]]) -> URL:
        # The base may have a path of its own. Quoting is ours: Go's parser drops a bare `;` in a query.
        return URL(f"{self._credentials.server}{path}{'?' if query else ''}{urlencode(query)}", encoded=True)

    def _new_session(self, *, limit: int, force_close: bool = False) -> aiohttp.ClientSession:
        context = self._credentials.ssl_context
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, force_close=force_close, ssl=context if context is not None else True
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # No compression: it costs the API server more than the network costs us.
            headers={
                "User-Agent": user_agent(),
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            raise_for_status=_raise_for_status,
            middlewares=(self._send_once,),
            trust_env=False,
        )


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Turn every refusal into an ApiError with the server's own sentence."""
    if 200 <= response.status < 300 or response.status == 101:
        return
    body = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError):  # the status alone is an answer
        async with asyncio.timeout(CONNECT_SECONDS):
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_ERROR_BYTES:
                    break
    raise api_error(response.status, bytes(body), retry_after=response.headers.get("Retry-After"))


def api_error(status: int, body: bytes, *, retry_after: str | None = None) -> ApiError:
    """An ApiError from a refusal: reason and message of its Status, or of a body that is none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or found.get("kind") != "Status":
        text = body.decode("utf-8", "replace").strip().replace("\n", " ")
        found = {"reason": "Unrecognized", "message": text[:200] or "no explanation"}
    wait = _whole_seconds(retry_after)
    if wait is None:
        details = found.get("details")
        wait = _whole_seconds(details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    return ApiError(
        status=status,
        reason=str(found.get("reason") or "Unknown"),
        message=str(found.get("message") or "no explanation"),
        retry_after=wait,
    )


def _whole_seconds(value: object) -> float | None:
    text = str(value)
    return float(text) if value and text.isascii() and text.isdigit() else None


def _kept_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: response.headers[name] for name in ("Date", "Warning") if name in response.headers}


async def _messages(
    socket: aiohttp.ClientWebSocketResponse, what: str
) -> AsyncGenerator[tuple[int, bytes], None]:
    while True:
        message = await socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            yield channel_message(message.data)
        elif message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED):
            return
        elif message.type is aiohttp.WSMsgType.ERROR:
            raise NoAnswerError(f"{what}: {_sentence(message.data)}")
        else:
            raise NoAnswerError(f"{what}: a {message.type.name} message, which is no part of the protocol")


class _answers:  # noqa: N801 - reads as a statement
    """Everything that keeps an answer from being whole becomes a NoAnswerError that says what was asked."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._seconds = seconds

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            raise NoAnswerError(f"{self._what}: no connection within {CONNECT_SECONDS:g} s") from error
        if isinstance(error, TimeoutError):
            raise NoAnswerError(f"{self._what}: no answer within {self._seconds:g} s") from error
        if isinstance(error, aiohttp.ClientError | OSError | CredentialsError):
            raise NoAnswerError(f"{self._what}: {_sentence(error)}") from error


def _authorized(headers: Mapping[str, str], authorization: str | None) -> dict[str, str]:
    return dict(headers) if authorization is None else {**headers, "Authorization": authorization}


def _sentence(error: BaseException | None) -> str:
    return str(error) or type(error).__name__
