"""Command lines of both engines as settings; flags that only a real engine has a use for are ignored."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .faults import Faults, parse_faults

FAULTS_VARIABLE = "SAMPLE_ENGINE_FAULTS"
NAME_VARIABLE = "SAMPLE_ENGINE_NAME"
SIGTERM_VARIABLE = "SAMPLE_ENGINE_SIGTERM"

FLAVOURS = ("vllm", "sglang")
ENDINGS = ("abort", "serve")


@dataclass(frozen=True)
class Settings:
    """How one engine runs."""

    flavour: str
    """`vllm` or `sglang`: whose metrics it serves."""
    name: str
    """What it calls itself in every answer: the Pod's name, which is its host name."""
    model: str
    host: str
    port: int
    slots: int
    """Requests it works on at once; the others wait."""
    ranks: int
    """Data-parallel ranks, each with its own series."""
    statistics: bool
    """Whether /metrics has gauges. vLLM: unless `--disable-log-stats`; SGLang: with `--enable-metrics`."""
    on_sigterm: str
    """`abort` cuts what runs and exits 2 s later, as vLLM does; `serve` goes on until nothing runs, as SGLang."""
    tokens_per_second: float
    """The pace of a request that names none."""
    certificate: str | None
    key: str | None
    faults: Faults


def parse(flavour: str, argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from an engine's own command line and the SAMPLE_ENGINE_* variables.

    `argv` is what follows the program: `serve MODEL …` for vLLM, flags alone for SGLang. ValueError or
    SystemExit for what cannot be run.
    """
    words = [_spelled(word) for word in argv]
    model = ""
    if flavour == "vllm":
        if words[:1] != ["serve"]:
            raise ValueError("vllm: only `vllm serve MODEL …` is known")
        words = words[1:]
        if words and not words[0].startswith("-"):
            model = words.pop(0)
    options, _ignored = _parser(flavour).parse_known_args(words)
    model = options.served_model_name[0] if options.served_model_name else (options.model or model)
    if not model:
        raise ValueError(f"{flavour}: no model is named")
    on_sigterm = environment.get(SIGTERM_VARIABLE) or ("abort" if flavour == "vllm" else "serve")
    if on_sigterm not in ENDINGS:
        raise ValueError(f"{SIGTERM_VARIABLE}: {on_sigterm!r} is none of {', '.join(ENDINGS)}")
    return Settings(
        flavour=flavour,
        name=environment.get(NAME_VARIABLE) or socket.gethostname(),
        model=model,
        host=options.host,
        port=options.port,
        slots=options.slots,
        ranks=options.ranks,
        statistics=options.enable_metrics if flavour == "sglang" else not options.disable_log_stats,
        on_sigterm=on_sigterm,
        tokens_per_second=options.tokens_per_second,
        certificate=options.ssl_certfile,
        key=options.ssl_keyfile,
        faults=parse_faults(options.faults or environment.get(FAULTS_VARIABLE, "")),
    )


def _spelled(word: str) -> str:
    """Both engines take underscores for hyphens in the names of flags."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


def _parser(flavour: str) -> argparse.ArgumentParser:
    vllm = flavour == "vllm"
    parser = argparse.ArgumentParser(prog=flavour, allow_abbrev=False, add_help=False)
    parser.add_argument("--model" if vllm else "--model-path", dest="model", default="")
    parser.add_argument("--served-model-name", nargs="+", default=[])
    parser.add_argument("--host", default="0.0.0.0" if vllm else "127.0.0.1")
    parser.add_argument("--port", type=int, default=8000 if vllm else 30000)
    parser.add_argument(
        "--max-num-seqs" if vllm else "--max-running-requests", dest="slots", type=int, default=256
    )
    parser.add_argument("--data-parallel-size" if vllm else "--dp-size", dest="ranks", type=int, default=1)
    parser.add_argument("--disable-log-stats", action="store_true")
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--ssl-certfile")
    parser.add_argument("--ssl-keyfile")
    parser.add_argument("--tokens-per-second", type=float, default=10.0)
    parser.add_argument("--faults", default="")
    return parser
