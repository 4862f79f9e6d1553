"""How a flag is read from an argument, once for the controller and once for the API server (CEL).

Engines and routers parse their command lines with argparse or something close to it: `--flag value`,
`--flag=value`, any unambiguous abbreviation, and in vLLM underscores for hyphens.
"""

from __future__ import annotations

from typing import Final

TLS_FLAGS: Final = {"--ssl-certfile": "--ssl-certf", "--ssl-keyfile": "--ssl-k"}
"""The flags that make an engine speak TLS, with the shortest abbreviation that stands for nothing else."""

CEL_FLAG_NAME: Final = "a.split('=', 2)[0].replace('_', '-')"
"""CEL: the folded name in argument `a`; like `flag_name`, for an `a` that CEL_IS_FLAG holds for."""

CEL_IS_FLAG: Final = "a.size() > 2 && a.startsWith('--')"


def flag_name(argument: str) -> str | None:
    """The long flag that an argument names, folded, or None when it is a value, `--` or a short flag."""
    if len(argument) <= 2 or not argument.startswith("--"):
        return None
    return argument.partition("=")[0].replace("_", "-")


def is_tls_flag(name: str) -> bool:
    """Whether a folded flag name is, or abbreviates, one of TLS_FLAGS."""
    return any(flag.startswith(name) and name.startswith(least) for flag, least in TLS_FLAGS.items())


def cel_is_tls_flag() -> str:
    """CEL: about the same for argument `a`, within the cost that a rule over all arguments of all roles may
    have."""
    spellings = [
        spelling for least in TLS_FLAGS.values() for spelling in (least, "--" + least[2:].replace("-", "_"))
    ]
    return " || ".join(f"a.startsWith('{spelling}')" for spelling in spellings)
