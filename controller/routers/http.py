"""HTTP to router Pods by their own address: bounded in time and size, no redirect followed, nothing kept open."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

import aiohttp

from controller.routers.base import UnreachableError

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""A listing larger than this is not an answer: it would hold a look, never release one."""


class PodFetch:
    """A `Fetch` over one session without connection reuse: a look must not trust a socket from before."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def __call__(self, method: str, url: str, *, timeout: float) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("PodFetch is used before it is entered")
        limits = aiohttp.ClientTimeout(total=timeout, connect=min(2.0, timeout))
        try:
            async with self._session.request(method, url, timeout=limits, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_chunked(65536):
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        raise UnreachableError(f"{url} answered more than {MAX_BODY_BYTES} bytes")
                return response.status, bytes(body)
        except TimeoutError:
            raise UnreachableError(f"{url} did not answer within {timeout:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(f"{url}: {error or type(error).__name__}") from None
