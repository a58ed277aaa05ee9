#!/bin/sh
# bindings/python/test.sh (make test-python): installs the package in a venv of PYTHON and runs its tests and mypy.
# WHEEL=FILE installs that wheel; else the package is built with CXX. DUET_CHAT_MODEL is build/<config>/tests/chat_model.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
venv=$PWD/build/python/venv-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
test -d "$venv" || "$python" -m venv "$venv"
"$venv/bin/pip" install -q -r bindings/python/tests/requirements.txt
"$venv/bin/pip" install -q --no-deps --force-reinstall "${WHEEL:-./bindings/python}"
cd bindings/python
"$venv/bin/python" -m pytest -q tests ${PYTEST:-}
# the module that abi.py made stands with the installed package
cp "$("$venv/bin/python" -c 'import duet._abi; print(duet._abi.__file__)')" src/duet/_abi.py
"$venv/bin/python" -m mypy
