#!/usr/bin/env bash
# A poison request among many, on real vLLM processes that are started again when they die: what is lost, and how far the poison gets.
#
#   scripts/poison.sh [ENGINES] [EPISODES]      default: 2 engines, 200 episodes, one of them the poison
#
# The poison is a chat request like others with two harmless fields: a seed, and a prompt longer than what vLLM computes in one step
# (--max-num-batched-tokens). On the CPU back end of vLLM 0.32 that ends EngineCore: between the parts of a prompt the runner sets the random
# generator back, and PyTorch's generator on the CPU cannot ("CPU Generator does not use offset").
#
# Then the failed ones are played again, by `resume --retry-failed`, until the poison alone is left, four sessions at most.
#
# Prints what came of each session; exits 1 where an episode is lost or doubled, another than the poison fails as anything but a suspect, or a second engine dies in one session.
# TRANCHE_BIN, TRANCHE_PORT (the first of the ports), TRANCHE_OUT: as in scripts/real-servers.sh. About 5 minutes on two quiet cores, 2 GB an engine.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
engines_n=${1:-2} episodes=${2:-200} port=${TRANCHE_PORT:-8391}
check_port "$port"
out=${TRANCHE_OUT:-$(mktemp -d)}
mkdir -p "$out"
bin=${TRANCHE_BIN:-$out/tranche}
[ -n "${TRANCHE_BIN:-}" ] || (cd "$scripts/.." && go build -o "$bin" ./cmd/tranche)
flags=(129 --hf-overrides '{"num_hidden_layers": 2}' --max-num-batched-tokens 1024)
ports=()
for ((i = 0; i < engines_n; i++)); do ports+=($((port + i))); done

# supervise PORT: start the server again whenever it has died, and keep the log of each life.
supervise() {
  local life=1
  while [ -e "$out/running" ]; do
    sleep 1
    read -r pid _ 2>/dev/null <"$engines/vllm/$1.pid" || continue
    kill -0 "$pid" 2>/dev/null && continue
    cp "$engines/vllm/$1.log" "$out/$1.life-$life.log"
    echo "$(date +%T) the engine on port $1 has died ($life); starting it again" >>"$out/deaths.txt"
    life=$((life + 1))
    "$scripts/vllm.sh" start "$1" "${flags[@]}" 2>>"$out/serve.txt" || true
    echo "$(date +%T) the engine on port $1 lives again" >>"$out/deaths.txt"
  done
}

finish() {
  rm -f "$out/running"
  wait
  for p in "${ports[@]}"; do "$scripts/vllm.sh" stop "$p" || true; done
}

rm -rf "$out/run" "$out"/*.log "$out/deaths.txt"
touch "$out/deaths.txt" "$out/running"
trap finish EXIT
endpoints=()
for p in "${ports[@]}"; do
  "$scripts/vllm.sh" start "$p" "${flags[@]}" 2>>"$out/serve.txt"
  endpoints+=(--endpoint "http://127.0.0.1:$p/v1")
done
for p in "${ports[@]}"; do supervise "$p" & done
python3 "$scripts/realservers/poison.py" tasks "$episodes" >"$out/tasks.jsonl"
play() { # play COMMAND...: one session, and what came of it
  local status=0
  : >"$out/deaths.txt"
  "$bin" "$@" --progress none >"$out/session.txt" 2>&1 || status=$?
  "$bin" view "$out/run" -n "$episodes" --json >"$out/rows.json"
  cat "$out/deaths.txt"
  python3 "$scripts/realservers/poison.py" report "$out" "$episodes" "$status"
}
# all_live waits until every engine answers: one that died is being started again.
all_live() {
  for p in "${ports[@]}"; do
    until curl -fs -m 2 -o /dev/null "http://127.0.0.1:$p/health"; do sleep 1; done
  done
}

play run "$out/tasks.jsonl" -n 1 "${endpoints[@]}" --model tiny --seed 1 --max-tokens 24 --max-context 4096 --concurrency 8 --reward none -o "$out/run"
for _ in 2 3 4; do
  [ "$(python3 "$scripts/realservers/poison.py" failed "$out")" -gt 1 ] || break
  all_live
  say "playing the failed ones again"
  play resume "$out/run" --retry-failed
done
say "what was written is in $out"
