"""One JSON line per event on standard output, so that a test reads from the engine itself what happened when."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Log = Callable[..., None]


def logger(name: str, *, clock: Callable[[], float] = time.time) -> Log:
    """`log(event, **facts)`. `unix` is the wall clock in seconds, `time` the same for people."""

    def log(event: str, **facts: Any) -> None:
        now = clock()
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": moment, "unix": round(now, 4), "event": event, "pod": name} | facts
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    return log
