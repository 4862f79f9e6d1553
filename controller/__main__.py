"""`python -m controller`: the same program as the command `ebb`."""

from __future__ import annotations

from controller.cli.main import main

if __name__ == "__main__":
    main()
