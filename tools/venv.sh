#!/usr/bin/env bash
# Make or refresh .venv: the pinned tools and the project itself, in place. `make venv` calls it when it is out of date.
#
# A new Debian or Ubuntu has a python3 without venv and says so only half-way through, leaving a broken folder behind;
# so everything that can be missing is asked for first, and named in one sentence.
set -euo pipefail
cd "$(dirname "$0")/.."

apt_line="apt-get install git make python3-venv"

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "venv: no Python 3.11 or later on PATH (on Debian 12 or later: $apt_line), or name one: make venv PYTHON=..." >&2
  return 1
}

python=$(find_python)

# A .venv whose Python is gone or too old is worth nothing; one that works is kept and brought up to date.
if ! .venv/bin/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "venv: $python cannot make virtual environments: its venv module is not installed ($apt_line)" >&2
    exit 1
  fi
  "$python" -m venv --clear .venv
fi

echo "venv: installing the pinned tools and ebb-controller into .venv ($("$python" --version))"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
touch .venv/.complete
