"""What holds for every file that is tracked, and for the imports between them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

# Written so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(?:work|root|home/[a-z]\w*)/(?!\W)")
REGISTRY = re.compile(
    "|".join(
        re.escape(host.replace("_", "."))
        for host in (
            "pypi_org/simple",
            "files_pythonhosted_org",
            "proxy_golang_org",
            "registry_npmjs_org",
            "index_crates_io",
            "repo_maven_apache_org",
        )
    )
)


def tracked() -> list[Path]:
    """Files under version control, those about to be added included."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing says which files are tracked")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


def test_no_file_names_a_folder_of_one_machine() -> None:
    """A path that exists on somebody's machine only is in no tracked file."""
    assert lines_with(MACHINE_PATH) == []


def test_no_file_names_a_registry() -> None:
    """Where packages come from is for the machine to say; no tracked file holds a registry's address."""
    assert lines_with(REGISTRY) == []


def test_the_patterns_find_what_they_look_for() -> None:
    """The two patterns above match what they are for, and leave ordinary paths alone."""
    assert MACHINE_PATH.search("see " + "/ro" + "ot/x")
    assert MACHINE_PATH.search("cd " + "/ho" + "me/ann/x")
    assert not MACHINE_PATH.search("$HOME/work/x and ~/root/y and a/work/b and /usr/lib")
    assert REGISTRY.search("https://" + "proxy.golang" + ".org")


def test_import_contracts_are_kept() -> None:
    """Who may import whom is as pyproject.toml says."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_roles_ask_for_no_wildcard() -> None:
    """RBAC names groups, resources and verbs one by one: a wildcard grants what nobody has thought of."""
    rules = [
        (path, rule)
        for path in sorted((ROOT / "manifests").rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document and document.get("kind") in ("Role", "ClusterRole")
        for rule in document["rules"]
    ]
    assert rules, "no Role or ClusterRole in manifests/"
    for path, rule in rules:
        for key in ("apiGroups", "resources", "verbs", "nonResourceURLs"):
            assert not any("*" in value for value in rule.get(key, ())), f"{path.name}: {rule}"
