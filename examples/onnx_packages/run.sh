#!/bin/sh
# Makes an environment beside this file on first use, and runs the packages in it: about 1.5 GB.
set -e
cd "$(dirname "$0")"
if [ ! -f .venv/ready ]; then
    "${PYTHON:-python3}" -m venv .venv
    .venv/bin/pip install --quiet -r requirements.txt
    .venv/bin/pip install --quiet --no-deps -r packages.txt
    .venv/bin/pip install --quiet ../..
    touch .venv/ready
fi
exec .venv/bin/python run.py "$@"
