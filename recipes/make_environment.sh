#!/bin/sh
# Makes the virtual environment of `make install`, with a Python that fairseq works on; leaves one that is there.
#
#   recipes/make_environment.sh DIR [PYTHON]
#
# Without PYTHON it takes the first of python3, python3.12, python3.11 and python3.10 that will do, or else has uv find
# or fetch one.

set -eu
dir=${1:?the folder of the environment} asked=${2:-} clear=''
PATH=$PATH:${HOME:-}/.local/bin # where pip and pipx install uv

fail() {
  echo "error: $*" >&2
  exit 1
}

# Whether a Python will do. For 3.10, fairseq has no builds: it is compiled.
fits() {
  "$1" -c '
import ensurepip, os, shutil, sys, sysconfig, venv
compiles = shutil.which("g++") and os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(not (3, 10 if compiles else 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

if [ "$(uname -sm)" != "Linux x86_64" ]; then
  fail "fairseq and torch have no builds for $(uname -sm); use Linux on x86_64 (on Windows, WSL)"
fi
if [ -e "$dir/.installing" ]; then
  echo "The last installation into $dir was interrupted: starting again."
  clear=--clear
elif "$dir/bin/python" -m pip --version >/dev/null 2>&1; then
  exit # if it is of another version, pip says so
elif [ -e "$dir/pyvenv.cfg" ]; then
  fail "$dir is a virtual environment whose pip does not work. Remove $dir, then run the same command again"
fi
names=${asked:-python3 python3.12 python3.11 python3.10}
for python in $names; do
  if fits "$python"; then
    echo "Making a virtual environment in $dir with $python."
    exec "$python" -m venv $clear "$dir"
  fi
done
if [ -z "$asked" ] && command -v uv >/dev/null; then
  echo "Making a virtual environment in $dir with uv."
  exec uv venv --quiet --seed $clear --python 3.12 "$dir"
fi
fail "found no Python that will do (tried $names). This needs Python 3.11 or 3.12, or 3.10 with g++ and Python.h; in" \
  "Debian and Ubuntu, with python3-venv. Shortest way: \`pip install uv\` or \`pipx install uv\`, which fetches one, then" \
  "the same command again${asked:+ without PYTHON=$asked}"
