#!/usr/bin/env bash
# Plays one small run with tools on each real server there is a script for, one after the other, and holds what it stored to the laws:
# each episode once, every id the server's own, no prefix break, one observation a tool call. Prints a table; a broken law ends it with 1.
#
#   scripts/real-servers.sh [llama] [vllm] [guidellm]    default: all three; what is not installed is said and is no fault
#
# About 3 minutes on two quiet cores. TRANCHE_BIN: the binary (default: built from this tree). TRANCHE_PORT: the port the servers get (8391).
# TRANCHE_OUT: where tasks, probes and runs are kept (default: a new folder in the temporary one, which the last line names).
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=${TRANCHE_PORT:-8391}
check_port "$port"
out=${TRANCHE_OUT:-$(mktemp -d)}
mkdir -p "$out"
need python3 "it writes the tasks and reads the rows"
bin=${TRANCHE_BIN:-$out/tranche}
[ -n "${TRANCHE_BIN:-}" ] || (cd "$scripts/.." && go build -o "$bin" ./cmd/tranche)
url=http://127.0.0.1:$port/v1
running=

stop() { [ -z "$running" ] || "$scripts/$running.sh" stop "$port" || true; }
trap stop EXIT

# play SERVER MODEL LIMIT EXTRA-BODY: probe it, play, audit; the facts go into files that laws.py reads.
play() {
  local name=$1 model=$2 limit=$3 extra=$4 dir=$out/$1 status=0
  rm -rf "$dir"
  mkdir -p "$dir"
  "$bin" probe "$url" >"$dir/probe.txt"
  "$bin" probe --json "$url" >"$dir/probe.json"
  "$bin" run "$out/tasks.jsonl" --limit "$limit" -n 1 --endpoint "$url" --model "$model" --seed 1 --temperature 0.7 --max-tokens 64 --max-turns 4 --concurrency 4 \
    --reward numeric --extra-body "$extra" -o "$dir/run" --progress none >"$dir/run.txt" 2>&1 || status=$?
  "$bin" view "$dir/run" -n "$limit" --json >"$dir/rows.json"
  "$bin" audit tokens "$dir/run" -n 0 --json >"$dir/audit.json" 2>"$dir/audit.txt" || echo '{}' >"$dir/audit.json"
  curl -fs -m 10 -o "$dir/health" "$url/../health" || status=dead
  python3 "$scripts/realservers/laws.py" "$name" "$dir" "$limit" "$status" >>"$out/table.md" || failed=1
}

# with SERVER FLAGS... -- PLAY-ARGUMENTS...
with() {
  local name=$1 flags=()
  shift
  while [ "$1" != -- ]; do
    flags+=("$1")
    shift
  done
  shift
  if [ ! -e "$engines/${ready[$name]}/ready" ]; then
    say "$name is not installed; get it with: scripts/$name.sh install"
    return
  fi
  running=$name
  "$scripts/$name.sh" start "$port" "${flags[@]}"
  play "$name" "$@"
  stop
  running=
}

declare -A ready=([llama]=llama [vllm]=vllm [guidellm]=py)
must='"tool_choice":"required","parallel_tool_calls":false' # both models are too small to choose to call a tool
failed=0
python3 "$scripts/realservers/tasks.py" >"$out/tasks.jsonl"
python3 "$scripts/realservers/laws.py" >"$out/table.md"
for name in "${@:-llama vllm guidellm}"; do
  for name in $name; do
    case $name in
    # A template with tools: the model's own has none, and the server then drops them without a word. The model writes no end of its own behind a
    # call, and the server's grammar lets it call without end: the end token (1) is made likelier, and "><" (1798), which would begin another call, is not to be had.
    llama) with llama --chat-template-file "$scripts/llama/tools.jinja" -c 16384 -np 4 -- gemma 4 "{$must,\"logit_bias\":{\"1\":50,\"1798\":-100}}" ;;
    # Two layers: the same scheduler and API, four times as fast. Of random weights, it ends a string sooner with the quote (4) and the brace (95) made likelier.
    vllm) with vllm --hf-overrides '{"num_hidden_layers": 2}' -- tiny 8 "{$must,\"logit_bias\":{\"4\":6,\"95\":6}}" ;;
    guidellm) with guidellm -- mock 8 '{}' ;;
    *) die "no such server: $name; expected llama, vllm or guidellm" ;;
    esac
  done
done
cat "$out/table.md"
say "what was written is in $out"
exit "$failed"
