"""What is published and pinned: dependencies, pins, licence, hooks, change log."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = (ROOT / "constraints.txt").read_text().splitlines()


def normal(name: str) -> str:
    """A distribution's name as PyPI compares it, without versions, extras and markers."""
    found = re.match(r"[A-Za-z0-9._-]+", name)
    assert found is not None, name
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_pins_are_nothing_but_names_and_versions() -> None:
    """constraints.txt holds `name==version` lines only: no address, no path, no hash, none twice."""
    for line in PINS:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line), line
    names = [normal(line) for line in PINS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("group", ["dependencies", "dev"])
def test_everything_that_is_asked_for_is_pinned(group: str) -> None:
    """Every dependency of the project and of its development has a pin."""
    asked = PROJECT["dependencies"] if group == "dependencies" else PROJECT["optional-dependencies"][group]
    assert {normal(name) for name in asked} <= {normal(line) for line in PINS}


def imported(path: Path) -> set[str]:
    """Top-level modules that a file imports, at any depth."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module.partition(".")[0])
    return modules


@pytest.mark.parametrize("package", ["apis", "controller"])
def test_what_is_shipped_declares_what_it_imports(package: str) -> None:
    """A module from elsewhere belongs to a declared dependency, not to one that happens to come along."""
    declared = {normal(name) for name in PROJECT["dependencies"]}
    owners = packages_distributions()
    for path in sorted((ROOT / package).rglob("*.py")):
        foreign = imported(path) - sys.stdlib_module_names - {"apis", "controller"}
        for module in foreign:
            assert {normal(name) for name in owners[module]} & declared, f"{path.relative_to(ROOT)}: {module}"


def test_the_licence_is_whole() -> None:
    """LICENSE is the text that pyproject.toml names."""
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_change_log_is_open() -> None:
    """CHANGELOG.md begins with an Unreleased section that says something."""
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]
    title, _, body = sections[0].partition("\n")
    assert title == "Unreleased"
    assert "- " in body


def test_hooks_fetch_nothing() -> None:
    """Every pre-commit hook is local and runs what .venv already has."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    for repo in config["repos"]:
        assert repo["repo"] == "local"
        for hook in repo["hooks"]:
            assert hook["language"] == "system"
            assert hook["entry"].startswith(".venv/bin/")
