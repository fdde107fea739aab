#!/usr/bin/env bash
# guidellm's mock server: an OpenAI-compatible server of others that answers made-up text at a set speed. No model.
#
#   scripts/guidellm.sh install            what scripts/pytools.sh installs: guidellm is pinned there
#   scripts/guidellm.sh start PORT [flags] serve model "mock" on 127.0.0.1:PORT and wait until it answers
#   scripts/guidellm.sh stop PORT
#
# Flags go to `guidellm mock-server` and win over the ones below. TRANCHE_ENGINES: where logs are kept.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder guidellm
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
program=$engines/py/bin/guidellm

start() {
  [ -x "$program" ] || die "not installed; first: $0 install"
  # torchless stands in for the torch that guidellm imports and the mock does not use.
  export PYTHONPATH=$here/../internal/interop/torchless PYTHONDONTWRITEBYTECODE=1 USE_TORCH=0 HF_HUB_OFFLINE=1 HF_HOME=$home
  cd "$home"
  launch "$1" "$program" mock-server --host 127.0.0.1 --port "$1" --model mock --request-latency 0.01 "${@:2}"
}

case ${1:-} in
install)
  "$here/pytools.sh" install
  ;;
start)
  check_port "${2:-}"
  start "${@:2}"
  ;;
stop)
  check_port "${2:-}"
  halt "$2"
  ;;
*)
  echo "usage: $me install | start PORT [mock-server flags] | stop PORT" >&2
  exit 2
  ;;
esac
