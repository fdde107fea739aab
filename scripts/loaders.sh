#!/usr/bin/env bash
# The data loaders of real trainers over what `tranche export` writes: TRL (SFT, DPO, GRPO; two steps of training each, of a tiny model on the
# CPU), verl (RL and multi-turn SFT), SkyRL, Atropos and Hugging Face datasets. Prints a table; docs/loaders.md holds the last one.
#
#   scripts/loaders.sh install       about 10 minutes and 5 GB the first time, nothing afterwards; prints its python
#   scripts/loaders.sh run [FOLDER]  makes three runs and their exports in FOLDER (default: a new one, removed afterwards) and loads them; ends with 1
#                                    where a loader sees something else than the run holds. About 2 minutes.
#
# TRANCHE_ENGINES: where it is kept. TRANCHE_BIN: the binary (default: built from this tree). The versions are pinned in
# scripts/loaders/requirements.txt. Where scripts/vllm.sh has installed the same torch, that one is used: it is most of the 5 GB.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder loaders
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
torch=2.13.0

# borrow_torch puts the packages of vLLM's environment behind those of this one, where it has the same torch for the same Python.
borrow_torch() {
  local of=$engines/vllm/venv/bin/python site
  [ -e "$engines/vllm/ready" ] && [ -x "$of" ] || return 1
  "$of" -c "import sys, torch; sys.exit(torch.__version__.split('+')[0] != '$torch')" 2>/dev/null || return 1
  [ "$("$of" -c 'import sys; print(sys.version_info[:2])')" = "$("$home/bin/python" -c 'import sys; print(sys.version_info[:2])')" ] || return 1
  site=$("$of" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$site" >"$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch-of-vllm.pth"
}

# whole says that all is there, also what was borrowed.
whole() { cmp -s "$here/loaders/requirements.txt" "$home/ready" && for f in "$home"/lib/python*/site-packages/torch-of-vllm.pth; do [ ! -e "$f" ] || [ -d "$(cat "$f")/torch" ]; done; }

install() {
  whole && return
  lock_install
  whole && return # the install we waited for
  rm -rf "$home/ready" "$home"/lib/python*/site-packages/torch-of-vllm.pth
  make_venv "$home"
  if borrow_torch; then
    install_pins loaders 'import torch, trl, verl' --no-deps --ignore-installed # else what it sees of vLLM's counts as installed
  else
    say "installing torch, about 4 GB"
    "$home/bin/pip" install -q --disable-pip-version-check "torch==$torch" >&2
    install_pins loaders 'import torch, trl, verl' --no-deps
  fi
}

# exported RUN FILE --to SHAPE FLAGS...
exported() {
  mkdir -p "$out/$1"
  "$bin" export "$out/$1.run" -o "$out/$1/$2" --format "${2##*.}" "${@:3}" >&2
}

run() {
  install
  out=${1:-$(mktemp -d)}
  [ -n "${1:-}" ] || trap 'rm -rf "$out"' EXIT
  mkdir -p "$out"
  bin=${TRANCHE_BIN:-$out/tranche}
  [ -n "${TRANCHE_BIN:-}" ] || (cd "$here/.." && go build -o "$bin" ./cmd/tranche)
  sed 's/"calculator","submit"/"calculator"/' "$here/../examples/arithmetic/tasks.jsonl" >"$out/one.jsonl"
  "$bin" run "$here/../examples/arithmetic/tasks.jsonl" -n 4 -o "$out/arithmetic.run" --progress none >&2
  "$bin" run -c "$here/../examples/tool-match/run.yaml" -o "$out/calls.run" --progress none >&2
  "$bin" run "$out/one.jsonl" -o "$out/one.run" --progress none >&2
  for shape in {trl-sft,messages,prompt-completion}.{parquet,jsonl} {dpo,verl-rl,skyrl}.parquet {atropos,areal,slime}.jsonl; do
    exported arithmetic "$shape" --to "${shape%.*}"
  done
  exported arithmetic verl-sft-text.parquet --to verl-sft --tools text
  exported calls messages.jsonl --to messages
  exported calls prompt-completion.jsonl --to prompt-completion
  exported one messages.jsonl --to messages
  exported one verl-sft.parquet --to verl-sft
  for name in arithmetic calls one; do
    "$bin" view "$out/$name.run" -n 1000000 --json >"$out/$name.rows.json"
  done
  PYTHONPATH=$here/loaders:$here/../internal/interop/python PYTHONDONTWRITEBYTECODE=1 "$home/bin/python" "$here/loaders/trainers.py" "$out"
}

case ${1:-} in
install)
  install
  echo "$home/bin/python"
  ;;
run) run "${@:2}" ;;
*)
  echo "usage: $me install | run [FOLDER]" >&2
  exit 2
  ;;
esac
