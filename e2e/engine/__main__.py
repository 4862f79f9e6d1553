"""`python -m e2e.engine vllm|sglang …`: the engine as a process of this machine."""

from __future__ import annotations

import sys

from .main import main

if __name__ == "__main__":
    if sys.argv[1:2] not in (["vllm"], ["sglang"]):
        sys.exit(
            "usage: python -m e2e.engine vllm serve MODEL [FLAGS]\n       python -m e2e.engine sglang [FLAGS]"
        )
    main(sys.argv.pop(1))
