#!/usr/bin/env bash
# Install what would be published into an empty environment, away from the checkout, and use it.
#
# An editable install hides what a build leaves out: data files, the programs that run inside engine containers, scripts.
set -euo pipefail
cd "$(dirname "$0")/.."

place=$(mktemp -d "${TMPDIR:-/tmp}/ebb-wheel.XXXXXX")
trap 'rm -rf "$place"' EXIT

# The wheel is built from the source archive, so both are complete or this fails.
.venv/bin/python -m build --outdir "$place/dist" . >"$place/build.log" 2>&1 || {
  cat "$place/build.log" >&2
  exit 1
}
.venv/bin/python -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  --constraint constraints.txt "$place"/dist/ebb_controller-*.whl

cd "$place"
venv/bin/python -I - <<'PYTHON'
import importlib.resources as resources
import pathlib
import sys

import apis
import controller

for package in (apis, controller):
    assert pathlib.Path(package.__file__).is_relative_to(sys.prefix), f"{package.__file__} is not the installed one"
for package, name in (("controller.drain_hook", "program.py"), ("controller.member_reader", "program.py")):
    assert resources.files(package).joinpath(name).is_file(), f"{package} lacks {name}"
PYTHON
venv/bin/ebb --help >/dev/null
venv/bin/kubectl-ebb --help >/dev/null
venv/bin/ebb crd | grep -q 'modeldeployments.ebb.dev'
echo "wheel: $(basename dist/*.whl) installs and runs outside the checkout"
