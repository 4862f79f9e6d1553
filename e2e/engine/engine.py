"""The engine: what it answers, and what it does with open streams when it is told to end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from . import metrics
from .faults import Faults, as_json, parse_faults
from .http import Reply, Request
from .log import Log
from .settings import Settings
from .work import Work

GENERATING = {"/v1/completions": "text_completion", "/v1/chat/completions": "chat.completion"}
NOTICE_SECONDS = 0.25
"""How late it may notice that a client hung up."""
HEALTHY_PATHS = ("/health", "/health_generate", "/ping")


class Engine:
    """One engine process, without its listener."""

    def __init__(
        self, settings: Settings, *, log: Log, exit_now: Callable[[int], None], created: float | None = None
    ) -> None:
        self.settings = settings
        self.work = Work(slots=settings.slots, ranks=settings.ranks)
        self.faults: Faults = settings.faults
        self._log = log
        self._exit_now = exit_now
        self._created = int(created if created is not None else time.time())
        self._numbers = 0

    async def handle(self, request: Request, reply: Reply) -> None:
        """Answer one request."""
        match request.method, request.path:
            case "POST", path if path in GENERATING:
                await self._generate(request, reply)
            case "GET", path if path in HEALTHY_PATHS:
                await reply.send(503 if self.faults.unhealthy else 200)
            case "GET", "/metrics":
                await self._metrics(reply)
            case "GET", "/v1/models":
                await reply.send_json({"object": "list", "data": [self._model()]})
            case "GET", "/version":
                await reply.send_json({"version": "sample", "pod": self.settings.name})
            case "GET", "/get_model_info" | "/model_info" | "/get_server_info" | "/server_info":
                await reply.send_json(
                    {
                        "model_path": self.settings.model,
                        "served_model_name": self.settings.model,
                        "dp_size": 1,
                    }
                )
            case "POST", "/admin/faults":
                await self._change_faults(request, reply)
            case "GET", "/admin/faults":
                await reply.send_json(as_json(self.faults))
            case _:
                await reply.send_json({"error": {"message": "no such path", "code": 404}}, status=404)

    async def _generate(self, request: Request, reply: Reply) -> None:
        try:
            wanted = json.loads(request.body)
            tokens = max(1, int(wanted.get("max_completion_tokens") or wanted.get("max_tokens") or 16))
            pace = self._pace(wanted, tokens)
        except (ValueError, TypeError, AttributeError) as error:
            await reply.send_json({"error": {"message": str(error), "code": 400}}, status=400)
            return
        self._numbers += 1
        number = f"{self.settings.name}-{self._numbers}"
        began = time.monotonic()
        sent = 0
        self._log("begin", request=number, path=request.path, tokens=tokens, seconds=round(tokens * pace, 3))
        try:
            async with self.work.request():
                stream = bool(wanted.get("stream"))
                if stream:
                    reply.begin(200, content_type="text/event-stream")
                started = time.monotonic()
                for sent in range(1, tokens + 1):
                    # Against the start, so that a late wake-up does not make the whole stream late.
                    await _sleep_until(started + sent * pace, reply)
                    self.work.generated += 1
                    if stream:
                        await reply.chunk(self._chunk(request.path, number, sent, last=sent == tokens))
            if stream:
                await reply.chunk(b"data: [DONE]\n\n")
                await reply.end()
            else:
                await reply.send_json(self._whole(request.path, number, tokens))
        except (ConnectionError, asyncio.CancelledError) as error:
            self._log("abort", request=number, sent=sent, tokens=tokens, why=str(error) or "connection reset")
            raise
        self._log("end", request=number, sent=sent, tokens=tokens, seconds=round(time.monotonic() - began, 3))

    def _pace(self, wanted: dict[str, Any], tokens: int) -> float:
        """Seconds per token: `seconds` for the whole, or `tokens_per_second`, or the engine's own pace."""
        if wanted.get("seconds") is not None:
            pace = float(wanted["seconds"]) / tokens
        else:
            pace = 1.0 / float(wanted.get("tokens_per_second") or self.settings.tokens_per_second)
        if not 0 <= pace <= 3600:
            raise ValueError("a token takes 0 to 3600 s")
        return pace

    def _chunk(self, path: str, number: str, token: int, *, last: bool) -> bytes:
        finish = "length" if last else None
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if path == "/v1/completions":
            answer = self._answer("text_completion", number, choice | {"text": f" t{token}"})
        else:
            delta = {"delta": {"role": "assistant", "content": f" t{token}"}}
            answer = self._answer("chat.completion.chunk", number, choice | delta)
        return f"data: {json.dumps(answer)}\n\n".encode()

    def _whole(self, path: str, number: str, tokens: int) -> dict[str, Any]:
        text = "".join(f" t{token}" for token in range(1, tokens + 1))
        said = (
            {"text": text}
            if path == "/v1/completions"
            else {"message": {"role": "assistant", "content": text}}
        )
        answer = self._answer(GENERATING[path], number, {"index": 0, "finish_reason": "length"} | said)
        return answer | {
            "usage": {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
        }

    def _answer(self, kind: str, number: str, choice: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": number,
            "object": kind,
            "created": self._created,
            "model": self.settings.model,
            "choices": [choice],
            "pod": self.settings.name,
        }

    def _model(self) -> dict[str, Any]:
        return {"id": self.settings.model, "object": "model", "created": self._created, "owned_by": "sample"}

    async def _metrics(self, reply: Reply) -> None:
        faults = self.faults
        self._log("metrics", running=self.work.running.total(), waiting=self.work.waiting.total())
        if self.settings.flavour == "sglang" and not self.settings.statistics:
            await reply.send(404)
            return
        if faults.metrics_seconds:
            await asyncio.sleep(faults.metrics_seconds)
        body = metrics.page(self.settings, self.work, faults).encode()
        match faults.metrics:
            case "hang":
                while not reply.peer_left:
                    await asyncio.sleep(0.5)
            case "half":
                await reply.send_half(body, content_type=metrics.CONTENT_TYPE)
            case "reset":
                reply.reset()
            case "error":
                await reply.send(500)
            case "html":
                await reply.send(200, body, content_type="text/html")
            case _:
                await reply.send(200, body, content_type=metrics.CONTENT_TYPE)

    async def _change_faults(self, request: Request, reply: Reply) -> None:
        try:
            faults = parse_faults(request.body.decode())
        except (ValueError, TypeError) as error:
            await reply.send_json({"error": {"message": str(error), "code": 400}}, status=400)
            return
        self.faults = faults
        self._log("faults", faults=as_json(faults))
        await reply.send_json(as_json(faults))
        if faults.exit_code is not None:
            self._log("exit", code=faults.exit_code, why="told to")
            self._exit_now(faults.exit_code)


async def _sleep_until(moment: float, reply: Reply) -> None:
    """Sleep until that moment of the monotonic clock; ConnectionResetError as soon as the client has left."""
    while True:
        if reply.peer_left:
            raise ConnectionResetError("the client left")
        left = moment - time.monotonic()
        if left <= 0:
            return
        await asyncio.sleep(min(left, NOTICE_SECONDS))
