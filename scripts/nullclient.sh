#!/usr/bin/env bash
# AsyncOpenAI with httpx and with aiohttp, for BenchmarkNull: what our client is compared with.
#
#   scripts/nullclient.sh install      some 20 s the first time, nothing afterwards; prints its python
#   scripts/nullclient.sh bench        runs BenchmarkNull with both; for a machine with two cores to itself
#
# TRANCHE_ENGINES: where it is kept. The versions are pinned in scripts/nullclient/requirements.txt.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder nullclient
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

install() { install_pins nullclient 'import aiohttp, openai; openai.DefaultAioHttpClient()'; }

case ${1:-} in
install)
  install
  echo "$home/bin/python"
  ;;
bench)
  install
  cd "$here/.."
  TRANCHE_NULL_PYTHON=$home/bin/python go test ./inference -run '^$' -bench Null -benchtime "${2:-20000x}"
  ;;
*)
  echo "usage: $me install | bench [20000x]" >&2
  exit 2
  ;;
esac
