#!/bin/sh
# Makes the virtual environment of `make install`, with a Python that fairseq works on; leaves a good one as it is.
#
#   recipes/make_environment.sh DIR [PYTHON]
#
# Without PYTHON it takes the first of python3, python3.12, python3.11 and python3.10 that will do, or else has uv find
# or fetch one.

set -eu
dir=$1 asked=${2:-} python='' clear=''
PATH=$PATH:${HOME:-}/.local/bin # where pip and pipx install uv

fail() {
  echo "error: $*" >&2
  exit 1
}

system=$(uname -sm)
versions="3.12 3.11 3.10"
needed="Python 3.11 or 3.12, or 3.10 with a C++ compiler, since fairseq has builds for no other"
case $system in
  "Linux x86_64") ;;
  "Linux aarch64")
    versions=3.10
    needed="Python 3.10 with a C++ compiler, since fairseq has no builds for $system"
    ;;
  *) fail "fairseq and torch have no builds for $system; use Linux on x86_64 (on Windows, WSL)" ;;
esac

if [ -e "$dir/.installing" ]; then
  echo "The last installation into $dir was interrupted: starting again."
  clear=--clear
elif "$dir/bin/python" -m pip --version >/dev/null 2>&1; then
  found=$("$dir/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  case " $versions " in *" $found "*) exit ;; esac
  fail "$dir has Python $found; this needs $needed. Remove $dir, then run the same command again"
elif [ -e "$dir/pyvenv.cfg" ]; then
  fail "$dir is a virtual environment whose pip does not work. Remove $dir, then run the same command again"
fi

# Says why a Python will not do, and nothing of one that will.
fault() {
  "$1" -c '
import os, shutil, sys, sysconfig
version, header = "%d.%d" % sys.version_info[:2], os.path.join(sysconfig.get_path("include"), "Python.h")
try:
    import ensurepip, venv
except ImportError:
    ensurepip = None
if version not in sys.argv[1].split():
    print("is Python " + version)
elif not ensurepip:
    print("lacks ensurepip (in Debian and Ubuntu: apt install python3-venv)")
elif version == "3.10" and not (shutil.which("g++") and os.path.exists(header)):
    print("is Python 3.10 without g++ or Python.h (in Debian and Ubuntu: apt install g++ python3-dev)")
' "$versions" 2>/dev/null || echo "does not run"
}

for candidate in ${asked:-python3 python3.12 python3.11 python3.10}; do
  found=$(fault "$candidate")
  if [ -z "$found" ]; then
    python=$candidate
    break
  fi
  # The last that runs is the best: of the right version, with something missing.
  if [ -z "${why:-}" ] || [ "$found" != "does not run" ]; then why="$candidate $found"; fi
done
if [ -z "$python$asked" ] && command -v uv >/dev/null; then python=uv; fi
if [ -z "$python" ]; then
  fail "$why; this needs $needed. Shortest way: \`pip install uv\` or \`pipx install uv\`, which fetches one," \
    "then the same command again${asked:+ without PYTHON=$asked}"
fi
if [ "$versions" = 3.10 ]; then
  echo "warning: fairseq has no builds for $system: its source is compiled, which has not been tried there" >&2
fi

echo "Making a virtual environment in $dir with $python."
case $python in
  uv) uv venv --quiet --seed $clear --python "${versions%% *}" "$dir" ;;
  *) "$python" -m venv $clear "$dir" ;;
esac
