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

install() { install_pins pytools 'import datasets, duckdb, guidellm, mcp, openai, polars, pyarrow' --no-deps; }

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
