"""`.ci/run` itself: order of steps, what a failure does, what is retried, how it closes.

The script runs for real in a small checkout whose Makefile and tools only record that they were called.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAKEFILE = r"""
venv:
	@echo venv >>calls; mkdir -p .venv/bin; cp recorder .venv/bin/python
lint:
	@echo lint >>calls; test ! -e fail-lint
test:
	@echo "test $$EBB_REQUIRE_CLUSTER" >>calls; $(PYTHON3) suite test
e2e:
	@echo "e2e $(ARGS)" >>calls; $(PYTHON3) suite e2e
"""

# Writes the report that PYTEST_ADDOPTS asks for. `plan` holds, for each call of a suite, the tests that fail.
SUITE = r"""
import os, pathlib, sys, time
name = sys.argv[1]
plan = pathlib.Path(f"plan-{name}")
lines = plan.read_text().splitlines() if plan.exists() else [""]
plan.write_text("\n".join(lines[1:]))
line = lines[0] if lines else ""
if line == "hang":
    pathlib.Path("hanging").touch()
    time.sleep(60)
if line == "crash":
    sys.exit(3)
failed = line.split()
report = next(o.partition("=")[2] for o in os.environ["PYTEST_ADDOPTS"].split() if o.startswith("--junitxml="))
cases = "".join(
    f'<testcase classname="{name}" name="{t}">{"<failure/>" if t in failed else ""}</testcase>' for t in "abc"
)
pathlib.Path(report).write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
sys.exit(1 if failed else 0)
"""

RECORDER = """#!/bin/sh
echo "$@" >>calls
"""


# What a surrounding `make test` or `.ci/run` would hand down.
HANDED_DOWN = ("ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS", "PYTEST_ADDOPTS")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in HANDED_DOWN}


@dataclass
class Run:
    status: int
    lines: list[str]
    calls: list[str]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the real script and the real tally, and recording stand-ins for the rest."""
    place = tmp_path / "checkout"
    (place / ".ci").mkdir(parents=True)
    (place / "tools").mkdir()
    shutil.copy(ROOT / ".ci" / "run", place / ".ci" / "run")
    shutil.copy(ROOT / "tools" / "tally.py", place / "tools" / "tally.py")
    (place / "tools" / "check_wheel.sh").write_text("#!/bin/sh\necho wheel >>calls\n")
    (place / "Makefile").write_text(MAKEFILE.replace("$(PYTHON3)", sys.executable))
    (place / "suite").write_text(SUITE)
    (place / "recorder").write_text(RECORDER)
    for program in (place / "tools" / "check_wheel.sh", place / "recorder"):
        program.chmod(0o755)
    return place


@pytest.fixture
def ci(checkout: Path) -> Callable[..., Run]:
    def run(**environment: str) -> Run:
        done = subprocess.run(
            ["bash", ".ci/run"],
            cwd=checkout,
            env={**ENVIRONMENT, "TMPDIR": str(checkout.parent), "CI": "true", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        return Run(done.returncode, done.stdout.splitlines(), (checkout / "calls").read_text().splitlines())

    return run


DOWN = "-m e2e.cluster down --all"


def test_a_good_run(ci: Callable[..., Run], checkout: Path) -> None:
    """Steps in order, the cluster taken down, seconds printed, and the count of all tests as the last line."""
    run = ci()
    assert run.status == 0
    assert run.calls == ["venv", "lint", "test 1", "wheel", "e2e ", DOWN]
    assert run.lines[-1] == "6 passed, 0 failed, 0 skipped"
    assert "retried: 0" in run.lines
    assert any(line.endswith(" s  lint") for line in run.lines)
    assert not list(checkout.parent.glob("ebb-ci.*"))


def test_a_failed_step_ends_the_run(ci: Callable[..., Run], checkout: Path) -> None:
    """After a failure nothing more runs but the taking down, and the status is not 0."""
    (checkout / "fail-lint").touch()
    run = ci()
    assert run.status != 0
    assert run.calls == ["venv", "lint", DOWN]
    assert any("FAILED" in line for line in run.lines)


def test_a_failed_unit_test_is_never_retried(ci: Callable[..., Run], checkout: Path) -> None:
    """Only the node's suites get a second try."""
    (checkout / "plan-test").write_text("b")
    run = ci()
    assert run.status != 0
    assert run.calls == ["venv", "lint", "test 1", DOWN]
    assert run.lines[-1] == "2 passed, 1 failed, 0 skipped"


def test_failed_node_tests_get_one_second_try(ci: Callable[..., Run], checkout: Path) -> None:
    """Failed tests of the node run once more, alone, and are named; passing then makes the run good."""
    (checkout / "plan-e2e").write_text("b c\n")
    run = ci()
    assert run.status == 0
    assert run.calls[-3:] == ["e2e ", "e2e --last-failed --last-failed-no-failures none", DOWN]
    assert "retried: 2" in run.lines
    assert "  e2e::b: passed the second time" in run.lines
    assert run.lines[-1] == "6 passed, 0 failed, 0 skipped"


def test_a_second_failure_is_final(ci: Callable[..., Run], checkout: Path) -> None:
    """There is no third try."""
    (checkout / "plan-e2e").write_text("b\nb\n")
    run = ci()
    assert run.status != 0
    assert sum(call.startswith("e2e") for call in run.calls) == 2
    assert run.lines[-1] == "5 passed, 1 failed, 0 skipped"


def test_a_suite_that_did_not_start_is_not_retried(ci: Callable[..., Run], checkout: Path) -> None:
    """Without a failed test there is nothing that a second try could change."""
    (checkout / "plan-e2e").write_text("crash")
    run = ci()
    assert run.status != 0
    assert sum(call.startswith("e2e") for call in run.calls) == 1


def test_the_budget_stops_a_step(ci: Callable[..., Run], checkout: Path) -> None:
    """A step that goes on is ended before the budget is over, the cluster is taken down, and the reason is said."""
    (checkout / "plan-e2e").write_text("hang")
    run = ci(EBB_CI_BUDGET="125")
    assert run.status != 0
    assert run.calls[-1] == DOWN
    assert any("the budget of 125 s is spent" in line for line in run.lines)
    assert run.lines[-1] == "3 passed, 0 failed, 0 skipped"


def test_a_signal_takes_the_cluster_down(checkout: Path) -> None:
    """SIGTERM in the middle of a step ends that step at once and takes the cluster down."""
    (checkout / "plan-e2e").write_text("hang")
    process = subprocess.Popen(
        ["bash", ".ci/run"],
        cwd=checkout,
        env={**ENVIRONMENT, "TMPDIR": str(checkout.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 30
    while not (checkout / "hanging").exists():
        assert time.monotonic() < until, "the suite did not start within 30 s"
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) != 0
    assert (checkout / "calls").read_text().splitlines()[-1] == DOWN


def test_an_unknown_argument_is_refused(checkout: Path) -> None:
    """Anything but --cold is answered with the usage."""
    done = subprocess.run(
        ["bash", ".ci/run", "--warm"], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "usage: .ci/run [--cold]\n")


def test_cold_runs_a_clone_with_nothing_of_the_callers(checkout: Path) -> None:
    """--cold runs what is committed, with a HOME and caches of its own, and leaves nothing behind."""
    (checkout / "Makefile").write_text(
        MAKEFILE.replace("$(PYTHON3)", sys.executable).replace(
            "@echo lint >>calls;", "@env | sort >$(dir $(CURDIR))../environment;"
        )
    )
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], cwd=checkout, check=True)
    done = subprocess.run(
        ["bash", ".ci/run", "--cold"],
        cwd=checkout,
        env={
            **ENVIRONMENT,
            "TMPDIR": str(checkout.parent),
            "SECRET": "of mine",
            "GOPROXY": "a-proxy",
            "PIP_RETRIES": "7",
            "PIP_CACHE_DIR": "of mine",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "6 passed, 0 failed, 0 skipped"
    found = dict(
        line.partition("=")[::2]
        for line in (checkout.parent / "environment").read_text().splitlines()
        if "=" in line
    )
    assert "SECRET" not in found
    assert (found["GOPROXY"], found["PIP_RETRIES"], found["CI"]) == ("a-proxy", "7", "true")
    cold = Path(found["HOME"]).parent
    assert cold.name.startswith("ebb-cold.")
    for name in ("EBB_CACHE", "XDG_CACHE_HOME", "PIP_CACHE_DIR", "GOPATH", "GOCACHE"):
        assert Path(found[name]).parent == cold
    assert not cold.exists()
    assert not (checkout / "calls").exists()
