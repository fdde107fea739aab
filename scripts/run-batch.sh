#!/usr/bin/env bash
# `vllm run-batch` and `tranche batch` over the same file with the same model, one after the other: what their outputs say, field by
# field, and how long each took. Exits 1 where an id is missing, doubled or in another place.
#
#   scripts/run-batch.sh [LINES]           default: 64 chat requests, and one of each kind that is special
#
# TRANCHE_BIN, TRANCHE_PORT, TRANCHE_OUT: as in scripts/real-servers.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=${TRANCHE_PORT:-8391}
check_port "$port"
out=${TRANCHE_OUT:-$(mktemp -d)}
mkdir -p "$out"
bin=${TRANCHE_BIN:-$out/tranche}
[ -n "${TRANCHE_BIN:-}" ] || (cd "$scripts/.." && go build -o "$bin" ./cmd/tranche)
layers=(--hf-overrides '{"num_hidden_layers": 2}')
seconds() { date +%s.%N; }

rm -f "$out"/{vllm,tranche}.jsonl
python3 "$scripts/realservers/batchfile.py" "${1:-64}" >"$out/in.jsonl"
began=$(seconds)
"$scripts/vllm.sh" run-batch "$out/in.jsonl" "$out/vllm.jsonl" "${layers[@]}" >"$out/vllm.txt" 2>&1 || {
  tail -n 20 "$out/vllm.txt" >&2
  die "vllm run-batch failed, see above"
}
ended=$(seconds)
trap '"$scripts/vllm.sh" stop "$port"' EXIT
"$scripts/vllm.sh" start "$port" "${layers[@]}" 2>"$out/serve.txt"
up=$(seconds)
"$bin" batch -i "$out/in.jsonl" -o "$out/tranche.jsonl" --model tiny --endpoint "http://127.0.0.1:$port/v1" --progress none --json >"$out/report.json" || [ $? = 5 ]
done=$(seconds)
python3 "$scripts/realservers/batchdiff.py" "$out" "$began" "$ended" "$up" "$done"
say "what was written is in $out"
