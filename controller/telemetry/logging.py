"""Logs as one JSON object per line, or readable on a terminal; never with a secret in them.

Libraries that log through the standard library come out in the same form. kubernetes_asyncio writes whole
bodies, Secrets among them, at DEBUG: it is kept above that whatever level is asked for.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor

from controller.settings import LogFormat, LogLevel

QUIET_LOGGERS: Final = ("kubernetes_asyncio", "client", "urllib3", "aiohttp.access")

_SECRET_WORDS: Final = ("authorization", "token", "password", "secret", "apikey", "api_key", "credential")
_REDACTED: Final = "[redacted]"


def configure_logging(*, log_format: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library for the whole process. Call it once, before anything logs."""
    out = stream if stream is not None else sys.stderr
    readable = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and out.isatty())
    number = logging.getLevelNamesMapping()[level.value.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        redact,
    ]
    render: list[Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                # A traceback with the values of variables would print credentials.
                colors=out.isatty(),
                timestamp_key="time",
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
        if readable
        else [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(serializer=_to_json),
        ]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(number, logging.INFO))


def redact(logger: Any, method: str, event: EventDict) -> EventDict:
    """Replace the values of keys that name a secret, at any depth, and Authorization values wherever they stand."""
    return {key: _REDACTED if _names_secret(key) else _redacted(value) for key, value in event.items()}


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return _REDACTED if value.startswith(("Bearer ", "Basic ")) else value
    if isinstance(value, MutableMapping):
        return {key: _REDACTED if _names_secret(str(key)) else _redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item) for item in value]
    return value


def _names_secret(key: str) -> bool:
    folded = key.lower().replace("-", "_")
    return any(word in folded for word in _SECRET_WORDS)


def _to_json(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
