"""`python -m e2e.images build NAME... | list`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .build import build
from .errors import ImageError
from .recipes import IMAGES


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.images", description="Images for tests and the demo."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="build images; prints reference and archive of each")
    building.add_argument("names", nargs="+", metavar="NAME", choices=[*IMAGES, "all"])
    commands.add_parser("list", help="print the names of the recipes")
    options = parser.parse_args(arguments)
    if options.command == "list":
        print("\n".join(IMAGES))
        return 0
    names = list(IMAGES) if "all" in options.names else options.names
    try:
        for name in names:
            image = build(name, progress=lambda text: print(text, file=sys.stderr, flush=True))
            print(image.reference, image.archive)
    except ImageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
