#!/usr/bin/env bash
# Makes benchmarks/environment: Roundtrip beside the published package, for the scripts in this folder.
# Run it again after a change of versions; what is already there is kept. PYTHON may name any Python >= 3.11.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-$(command -v python3.11 || command -v python3)}
environment=benchmarks/environment
install=("$environment/bin/python" -m pip install --quiet --disable-pip-version-check)

[ -x "$environment/bin/python" ] || "$python" -m venv "$environment"
# torch comes first and pinned: asked for by range it may bring gigabytes of GPU libraries.
"${install[@]}" --constraint constraints.txt torch==2.13.0
"${install[@]}" --constraint constraints.txt numpy matplotlib tqdm --editable .
# Without its dependencies: the viewers and readers among them are not needed for what is compared.
"${install[@]}" --no-deps icon_registration==1.1.9

"$environment/bin/python" -c 'import icon_registration, roundtrip, torch; print(f"ready: torch {torch.__version__}")'
