"""The argv of one read. The program's text stands in the URL of the exec request, so it travels made short."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from controller.engines.gauges import Gauge


def read_argv(*, url: str, gauges: Sequence[Gauge]) -> list[str]:
    """What runs in `main`: one loopback GET of `url`, of which only the samples of `gauges` come back."""
    return ["python3", "-c", program_text(), url, *(name for gauge in gauges for name in gauge.names)]


@cache
def program_text() -> str:
    """The program without docstrings, annotations, comments and blank lines, indented by single spaces."""
    tree = ast.parse(Path(__file__).with_name("program.py").read_text(encoding="utf-8"))
    text = re.sub(
        r"^( +)", lambda found: " " * (len(found[1]) // 4), ast.unparse(_Shortened().visit(tree)), flags=re.M
    )
    return re.sub(r"\n+", "\n", text)


_Documented = TypeVar("_Documented", ast.Module, ast.FunctionDef)


class _Shortened(ast.NodeTransformer):
    """What says something to a reader and nothing to the interpreter falls away."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        return self._without_docstring(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def _without_docstring(self, node: _Documented) -> _Documented:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        return node
