"""What a supervisor reports, told to the person who waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from .files import Progress


class Events:
    """Reads a supervisor's events as they are written: who is ready, who ended too early."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self.progress = progress
        self.ready: set[str] = set()
        self.ended: set[str] = set()
        """Programs that do not run now, because they ended or were stopped."""
        self.troubled: list[str] = []
        self.pids: dict[str, int] = {}
        self._offset = 0

    def read(self) -> None:
        """Take in whole new lines; a line that is still being written waits for the next time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole, _, _ = data.rpartition(b"\n")
        if not whole:
            return
        self._offset += len(whole) + 1
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, event: dict[str, str | int | float]) -> None:
        name = str(event["program"])
        if event["event"] == "started":
            self.pids[name] = int(event["pid"])
            self.ended.discard(name)
        elif event["event"] == "ready":
            self.ready.add(name)
            self.progress(f"  {event['seconds']:5.1f} s  {name} is ready")
        else:
            self.ready.discard(name)
            self.ended.add(name)
            if name not in self.troubled:
                self.troubled.append(name)
                self.progress(f"  {event['seconds']:5.1f} s  {name} ended with status {event['status']}")

    @staticmethod
    def tails(folder: Path, names: Iterable[str], *, lines: int = 12) -> str:
        """The last lines of the logs of these programs, each below its name."""
        parts = []
        for name in dict.fromkeys(names):
            path = folder / f"{name}.log"
            if path.exists():
                tail = path.read_text(errors="replace").splitlines()[-lines:]
                parts.append("\n".join([f"--- {name}", *tail]))
        return "\n".join(parts)
