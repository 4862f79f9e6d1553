"""Which acceptance cases, and which public bug reports, have no test yet.

`unit/cases.txt` and `unit/bugs.txt` hold the numbers, their owners (for bugs: the group) and one line each; a
test shows a case when its docstring starts with the number (or several: "A1, B04-02 ..."). A bug that cannot
happen here has a row in `docs/public-bugs.md` instead. Docstrings are read from the syntax tree, so nothing is
imported and a commented test shows nothing. Exits 1 when an owner is named and one of its cases has no test.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "unit" / "cases.txt"
BUGS = ROOT / "unit" / "bugs.txt"
REASONS = ROOT / "docs" / "public-bugs.md"
TREES = (ROOT / "unit", ROOT / "e2e")

# Other letters are other things: S1 to S10 are the invariants of the protocol.
_NUMBER = r"(?:B\d{2}-\d{2}|[A-N]\d{1,2})"
_LINE = re.compile(rf"({_NUMBER})\s+(\S+)\s+(.+)")
_ROW = re.compile(rf"\|\s*({_NUMBER})\s*\|\s*[^|\s]")
_OPENING = re.compile(rf"{_NUMBER}(?:(?:,\s*|\s+and\s+){_NUMBER})*(?=[\s:.])")


@dataclass(frozen=True)
class Case:
    number: str
    owners: tuple[str, ...]
    title: str


def read_cases(text: str) -> tuple[Case, ...]:
    """The cases of a data file: one a line, `#` for comments. Raises ValueError naming the wrong line."""
    cases: dict[str, Case] = {}
    for position, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(f"line {position}: not 'NUMBER OWNER TITLE': {line!r}")
        number, owners, title = found.groups()
        if number in cases:
            raise ValueError(f"line {position}: {number} is there twice")
        cases[number] = Case(number=number, owners=tuple(owners.split("+")), title=title)
    return tuple(cases.values())


def opening_numbers(docstring: str) -> tuple[str, ...]:
    """The case numbers that a docstring starts with."""
    found = _OPENING.match(docstring.lstrip())
    return tuple(re.findall(_NUMBER, found[0])) if found else ()


def shown_by(source: str) -> Iterator[tuple[str, str]]:
    """(number, test name) for each test of a module that shows a case."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            for number in opening_numbers(ast.get_docstring(node) or ""):
                yield number, node.name


def cases_shown(trees: Iterable[Path]) -> dict[str, list[str]]:
    """`file::test` of every test that shows a case, by case number."""
    found: dict[str, list[str]] = {}
    for tree in trees:
        for path in sorted(tree.rglob("test_*.py")):
            for number, test in shown_by(path.read_text(encoding="utf-8")):
                found.setdefault(number, []).append(f"{path.relative_to(tree.parent)}::{test}")
    return found


def reasons_given(path: Path) -> dict[str, list[str]]:
    """The numbers that a table says cannot happen, each with the file as its place."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {found[1]: [path.name] for line in lines if (found := _ROW.match(line))}


def report(cases: Sequence[Case], tests: Mapping[str, Sequence[str]], owners: Sequence[str]) -> Iterator[str]:
    """Lines for a person: per owner what has no test."""
    for owner in owners:
        owned = [case for case in cases if owner in case.owners]
        missing = [case for case in owned if not tests.get(case.number)]
        yield f"{owner}: {len(owned) - len(missing)} of {len(owned)} have a test"
        yield from (f"  {case.number:<6} {case.title}" for case in missing)


def strangers(known: Iterable[str], tests: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Lines for a person: tests that name no case that there is."""
    for number in sorted(set(tests) - set(known)):
        yield f"no case is called {number}: {', '.join(tests[number])}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="cases", description="List the acceptance cases, or the public bugs, that no test shows."
    )
    parser.add_argument("--bugs", action="store_true", help="the public bug reports instead of the cases")
    parser.add_argument("--owner", help="only what this owner or group has; exit 1 when one has no test")
    parser.add_argument("--tests", action="store_true", help="list the tests of each as well")
    options = parser.parse_args(arguments)

    lists = {path: read_cases(path.read_text(encoding="utf-8")) for path in (CASES, BUGS)}
    cases = lists[BUGS if options.bugs else CASES]
    all_owners = list(dict.fromkeys(owner for case in cases for owner in case.owners))
    if options.owner is not None and options.owner not in all_owners:
        parser.error(f"no owner {options.owner!r}; there are {', '.join(all_owners)}")
    owners = (
        [options.owner]
        if options.owner
        else sorted(all_owners, key=lambda owner: (owner.islower(), len(owner), owner))
    )
    tests = cases_shown(TREES)
    for number, places in reasons_given(REASONS).items():
        tests.setdefault(number, []).extend(places)

    if options.tests:
        for case in cases:
            if set(case.owners) & set(owners):
                print(f"{case.number:<6} {case.title}")
                for test in tests.get(case.number, ()):
                    print(f"       {test}")
    known = (case.number for found in lists.values() for case in found)
    for line in (*report(cases, tests, owners), *strangers(known, tests)):
        print(line)
    missing = any(options.owner in case.owners and not tests.get(case.number) for case in cases)
    return 1 if options.owner and missing else 0


if __name__ == "__main__":
    sys.exit(main())
