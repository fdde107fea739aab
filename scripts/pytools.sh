#!/usr/bin/env bash
# The Python programs our interoperability tests run: pyarrow, DuckDB, polars, Hugging Face datasets, openai, guidellm,
# mcp.
#
#   scripts/pytools.sh install          about 3 minutes and 900 MB the first time, nothing afterwards; prints its python
#
# TRANCHE_ENGINES: where it is kept. The versions are pinned in scripts/pytools/requirements.txt; changed pins are
# installed by the next call.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder py
pins=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/pytools/requirements.txt

installed() { cmp -s "$pins" "$home/ready"; }

install() {
  installed && return
  lock_install
  installed && return # the install we waited for
  make_venv "$home"
  "$home/bin/pip" install -q --disable-pip-version-check --no-deps -r "$pins" >&2
  "$home/bin/python" -c 'import datasets, duckdb, guidellm, mcp, openai, polars, pyarrow' ||
    die "the packages are installed but cannot be imported, see above"
  cp "$pins" "$home/ready"
}

case ${1:-} in
install)
  install
  echo "$home/bin/python"
  ;;
*)
  echo "usage: $me install" >&2
  exit 2
  ;;
esac
