#!/usr/bin/env bash
# Say what is missing before a long installation fails half way: `check_machine.sh PYTHON`.
set -euo pipefail

python=${1:-python3}
missing=()
command -v "$python" >/dev/null || { echo "python 3.11 or newer is needed; install python3" >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "python 3.11 or newer is needed; found $("$python" --version)" >&2; exit 1; }
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || missing+=(python3-dev)
command -v gcc >/dev/null || command -v cc >/dev/null || missing+=(gcc libc6-dev)
# Not needed, only said: without it the tests of OpenCL devices skip.
if ! ldconfig -p 2>/dev/null | grep -q libOpenCL.so.1; then
  echo "no libOpenCL.so.1: tests of OpenCL devices will skip (apt-get install pocl-opencl-icd ocl-icd-libopencl1)"
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if command -v apt-get >/dev/null; then
  if [ "$(id -u)" = 0 ]; then as_root=(); else as_root=(sudo -n); fi
  echo "Installing system packages: ${missing[*]}"
  if "${as_root[@]}" apt-get update -q && "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"; then
    exit 0
  fi
fi
echo "missing system packages: ${missing[*]}; install them and run make again" >&2
exit 1
