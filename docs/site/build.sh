#!/usr/bin/env bash
# Builds the documentation site in target/site/html, in a separate virtual environment. The build fails if a
# link is dead. Arguments are passed to mkdocs: `docs/site/build.sh serve` serves a preview and updates it
# when a page changes.
#
# The site includes the output of `cargo doc --no-deps --all-features`, and the help texts of the
# command-line tool (`cargo build -p warpfeed-cli`), if these have been built. The extension module is not
# needed, because mkdocstrings reads sources and stubs.
set -euo pipefail
cd "$(dirname "$0")"
venv=${WARPFEED_SITE_VENV:-../../target/site/venv}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
# Run pip only if the requirements have changed, because it takes seconds even if nothing is missing.
cmp -s requirements.txt "$venv/installed.txt" || {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$venv/installed.txt"
}
if [ $# -eq 0 ]; then set -- build --strict; fi
NO_MKDOCS_2_WARNING=1 "$venv/bin/python" -m mkdocs "$1" --config-file mkdocs.yml "${@:2}"
