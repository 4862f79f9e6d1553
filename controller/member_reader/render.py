"""The argv of one read. The program's text stands in the URL of the exec request, so it travels made short."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from controller.engines.gauges import Gauge


def read_argv(*, url: str, gauges: Sequence[Gauge]) -> list[str]:
    """What runs in `main`: one loopback GET of `url`, of which only the samples of `gauges` come back."""
    return ["python3", "-c", program_text(), url, *(name for gauge in gauges for name in gauge.names)]


@cache
def program_text() -> str:
    """The program without its docstring, comments and blank lines, indented by single spaces."""
    tree = ast.parse(Path(__file__).with_name("program.py").read_text(encoding="utf-8"))
    tree.body = tree.body[1:]
    text = re.sub(r"^( +)", lambda found: " " * (len(found[1]) // 4), ast.unparse(tree), flags=re.M)
    return re.sub(r"\n+", "\n", text)
