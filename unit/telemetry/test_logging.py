"""Logs: one object per line, readable on request, and no secret in either."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import orjson
import pytest
import structlog

from controller.settings import LogFormat, LogLevel
from controller.telemetry.logging import QUIET_LOGGERS, configure_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def logged(out: io.StringIO) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_one_object() -> None:
    """JSON lines carry time, level, message and what was bound, with an exception on the same line."""
    out = io.StringIO()
    configure_logging(log_format=LogFormat.JSON, level=LogLevel.INFO, stream=out)
    log = structlog.get_logger("x").bind(deployment="ns/chat")
    log.info("a pass\nended", seconds=1.5, path=PathLike())
    log.debug("not wanted")
    try:
        raise ValueError("boom")
    except ValueError:
        log.exception("a pass failed")
    first, second = logged(out)
    assert first | {"time": ""} == {
        "time": "",
        "level": "info",
        "message": "a pass\nended",
        "deployment": "ns/chat",
        "seconds": 1.5,
        "path": "like a path",
    }
    assert str(first["time"]).endswith("Z")
    assert "ValueError: boom" in str(second["exception"])


class PathLike:
    def __str__(self) -> str:
        return "like a path"


def test_libraries_log_in_the_same_form() -> None:
    """What a library logs through the standard library comes out as the same kind of line."""
    out = io.StringIO()
    configure_logging(log_format=LogFormat.JSON, level=LogLevel.INFO, stream=out)
    logging.getLogger("aiohttp.client").warning("connection %s", "lost")
    [line] = logged(out)
    assert (line["message"], line["level"], line["logger"]) == (
        "connection lost",
        "warning",
        "aiohttp.client",
    )


def test_bodies_stay_out_of_the_log() -> None:
    """kubernetes_asyncio is never heard at DEBUG, where it prints bodies, whatever level is asked for."""
    out = io.StringIO()
    configure_logging(log_format=LogFormat.JSON, level=LogLevel.DEBUG, stream=out)
    logging.getLogger("kubernetes_asyncio.client.rest").debug("response body: secret")
    logging.getLogger("something.else").debug("heard")
    assert [line["message"] for line in logged(out)] == ["heard"]


@pytest.mark.parametrize("log_format", [LogFormat.JSON, LogFormat.TEXT])
def test_secrets_are_replaced(log_format: LogFormat) -> None:
    """Values under a secret's name, at any depth, and Authorization values anywhere never reach the log."""
    out = io.StringIO()
    configure_logging(log_format=log_format, level=LogLevel.INFO, stream=out)
    structlog.get_logger().info(
        "asked",
        token="hush-1",
        headers={"Authorization": "hush-2", "X-Api-Key": "hush-3", "Accept": "fine-1"},
        sent=["Bearer hush-4", "fine-2"],
        given="Basic hush-5",
    )
    text = out.getvalue()
    assert "hush" not in text
    assert "fine-1" in text
    assert "fine-2" in text


def test_text_is_for_people() -> None:
    """The text form is no JSON, and without a terminal it has no colours."""
    out = io.StringIO()
    configure_logging(log_format=LogFormat.TEXT, level=LogLevel.INFO, stream=out)
    structlog.get_logger().info("ready", replicas=2)
    text = out.getvalue()
    assert "ready" in text
    assert "replicas=2" in text
    assert not text.startswith("{")
    assert "\x1b" not in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("out", "json"), [(io.StringIO(), True), (Terminal(), False)])
def test_auto_depends_on_the_terminal(out: io.StringIO, json: bool) -> None:
    """`auto` is text on a terminal and JSON anywhere else."""
    configure_logging(log_format=LogFormat.AUTO, level=LogLevel.INFO, stream=out)
    structlog.get_logger().info("ready")
    assert out.getvalue().startswith("{") is json
