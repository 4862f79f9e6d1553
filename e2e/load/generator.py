"""Clients that stream completions one after another until they are stopped."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random
from types import TracebackType
from typing import Any, Self

import aiohttp

from e2e.load.book import Book, End, Request, Tally

TOKENS_PER_SECOND = 4.0
"""The pace that the sample engine is asked for: slow enough for two cores, quick enough to notice a cut."""
SILENCE_SECONDS = 15.0
"""A stream without a byte for this long counts as lost: its engine streams several a second."""


class Load:
    """A bounded number of clients against one address of this machine's own node. Use it as an async context."""

    def __init__(self, *, seed: int = 1) -> None:
        self.book = Book()
        self._random = Random(seed)
        self._stopping = asyncio.Event()
        self._clients: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = new_session()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(drain=False)
        if self._session is not None:
            await self._session.close()

    def start(self, url: str, *, clients: int, seconds_range: tuple[float, float], model: str) -> None:
        """Begin; each client waits for the end of a stream before it begins the next."""
        self._clients = [
            asyncio.create_task(self._client(url, number, seconds_range, model)) for number in range(clients)
        ]

    def open_on(self, pod: str, *, min_left: float = 0.0) -> int:
        return self.book.open_on(pod, now=time.monotonic(), min_left=min_left)

    def tally(self, *, since: float = float("-inf"), until: float = float("inf")) -> Tally:
        """Spans are of time.monotonic()."""
        return self.book.tally(since=since, until=until)

    @property
    def distinct_prompts(self) -> int:
        return self.book.distinct_prompts

    async def stop(self, *, drain: bool = True) -> None:
        """Begin no more streams; with `drain`, wait for the open ones to end, else give them up."""
        self._stopping.set()
        if not drain:
            for client in self._clients:
                client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._clients = []

    async def _client(self, url: str, number: int, seconds_range: tuple[float, float], model: str) -> None:
        assert self._session is not None
        # Clients begin spread over a second, as people do.
        await asyncio.sleep(self._random.random())
        while not self._stopping.is_set():
            seconds = self._random.uniform(*seconds_range)
            # The part that differs stands first: a router that goes by prefixes would send like to like.
            prompt = f"{self._random.getrandbits(64):016x}: client {number} tells a story"
            request = self.book.open(prompt=prompt, expected=seconds, now=time.monotonic())
            await stream(self._session, url, book=self.book, request=request, model=model)
            if request.end is not End.FINISHED:
                # Whoever refuses must not be asked in a tight loop.
                await asyncio.sleep(1.0)


def new_session() -> aiohttp.ClientSession:
    """A session for streams: no bound on the whole, a bound on the silence between two pieces."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=SILENCE_SECONDS),
    )


async def stream(
    session: aiohttp.ClientSession, url: str, *, book: Book, request: Request, model: str
) -> None:
    """Stream one completion to its end and write into the book what became of it."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": request.prompt,
        "max_tokens": max(1, round(request.expected * TOKENS_PER_SECOND)),
        "tokens_per_second": TOKENS_PER_SECOND,
        "ignore_eos": True,
        "stream": True,
    }
    complete, error = False, ""
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            if response.status != 200:
                error = f"status {response.status}: {(await response.text())[:200]}"
            else:
                async for line in response.content:
                    complete = _heard(request, line.strip()) or complete
    except asyncio.CancelledError:
        book.close(request, end=End.STOPPED, now=time.monotonic())
        raise
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    if complete and not error:
        end = End.FINISHED
    else:
        end = End.CUT if request.first_chunk is not None else End.FAILED
        error = error or "the stream ended without its end mark"
    book.close(request, end=end, now=time.monotonic(), error=error)


def _heard(request: Request, line: bytes) -> bool:
    """Note a line of the stream; True at its end mark."""
    if not line.startswith(b"data:"):
        return False
    data = line[5:].strip()
    if data == b"[DONE]":
        return True
    if request.first_chunk is None:
        request.first_chunk = time.monotonic()
    chunk = json.loads(data)
    request.pod = request.pod or str(chunk.get("pod", ""))
    return False
