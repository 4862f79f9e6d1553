"""Print docs/conditions.md: the table of every condition and its reasons, from the very words of the API.

`make docs` writes it; a test fails while the two differ.
"""

from __future__ import annotations

from apis.v1alpha1.conditions import REASONS

INTRODUCTION = """# Conditions

Written by `make docs`. Every condition carries the generation of the spec it speaks of, and a message
about this very deployment; its reason is one of these. What is not known is not written.
"""


def render() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    for condition, reasons in REASONS.items():
        rows = "".join(f"| `{reason}` | {reason.doc} |\n" for reason in reasons)
        parts.append(f"## `{condition}`\n\n{condition.doc}\n\n| reason | when |\n|---|---|\n{rows}")
    return "\n".join(parts)


if __name__ == "__main__":
    print(render(), end="")
