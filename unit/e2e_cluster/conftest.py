"""Stand-ins on PATH that record how they are called, and a cache folder of each test's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from e2e.cluster import binaries

RECORDER = """\
#!{python}
import json, sys
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
"""


class StandIns:
    """Programs that do nothing but write down their arguments, and then run what the test gives them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._calls = folder.parent / "calls.jsonl"

    def add(self, name: str, body: str = "", *, folder: Path | None = None) -> Path:
        """A program `name` that records, then runs the Python text `body` (with `json` and `sys` imported)."""
        target = folder or self.folder
        target.mkdir(parents=True, exist_ok=True)
        path = target / name
        path.write_text(RECORDER.format(python=sys.executable, calls=str(self._calls), name=name) + body)
        path.chmod(0o755)
        return path

    @property
    def calls(self) -> list[list[str]]:
        """Every call so far, in order: name, then arguments."""
        if not self._calls.exists():
            return []
        return [json.loads(line) for line in self._calls.read_text().splitlines()]

    def calls_of(self, name: str) -> list[list[str]]:
        return [call[1:] for call in self.calls if call[0] == name]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("EBB_CACHE", str(folder))
    return folder


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    """A PATH that holds nothing but stand-ins."""
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return StandIns(folder)


@pytest.fixture
def built(cache: Path, stand_ins: StandIns) -> Path:
    """The folder of a finished control-plane build whose kubectl is a stand-in."""
    folder = binaries._folder("control-plane")
    answers = (
        "if 'jsonpath={.status.certificate}' in sys.argv: print('Y2VydGlmaWNhdGU=', end='')\n"
        "elif 'view' in sys.argv: print(json.dumps({'clusters': [{'name': 'theirs', 'cluster': "
        "{'server': 'https://theirs', 'certificate-authority-data': 'Y2E='}}]}))\n"
        "elif 'nodes' in sys.argv: print('172.18.0.2', end='')\n"
    )
    stand_ins.add("kubectl", answers, folder=folder)
    return folder
