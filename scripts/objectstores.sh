#!/usr/bin/env bash
# Object stores of other people: what storage/objectstore does on servers that were not written for it.
#
#   scripts/objectstores.sh install     a few minutes the first time, nothing afterwards
#   scripts/objectstores.sh run         the suite of storage/objectstore on each, a run pushed and pulled with the binary, 30 killed
#                                       pushes, and the result read with pyarrow; a law that is broken ends it with 1
#
# The servers: moto (Python) and versitygw (Go) for S3, fake-gcs-server (Go) for Google, Azurite (npm) for Azure. They listen on
# 127.0.0.1 and keep nothing. TRANCHE_ENGINES: where they are installed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder objectstores
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
azurite=3.37.0 gcs=v1.56.1 versity=v1.8.0

install() {
  install_pins objectstores 'import moto.server, pyarrow.fs'
  need npm "Azurite comes by it"
  [ -x "$home/azurite-$azurite/node_modules/.bin/azurite-blob" ] || npm install --silent --no-audit --no-fund --prefix "$home/azurite-$azurite" "azurite@$azurite" >&2
  [ -x "$home/gcs-$gcs/fake-gcs-server" ] || GOBIN=$home/gcs-$gcs go install "github.com/fsouza/fake-gcs-server@$gcs" >&2
  [ -x "$home/versity-$versity/versitygw" ] || GOBIN=$home/versity-$versity go install "github.com/versity/versitygw/cmd/versitygw@$versity" >&2
}

pids=()
work=
clean() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  [ -z "$work" ] || rm -rf "$work"
}

# serve PORT COMMAND...: in the background, until something listens there.
serve() {
  local port=$1
  shift
  port_taken "$port" && die "port $port on 127.0.0.1 is taken"
  "$@" >"$work/$port.log" 2>&1 </dev/null &
  pids+=($!)
  for _ in {1..240}; do
    port_taken "$port" && return
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.5
  done
  tail -n 20 "$work/$port.log" >&2
  die "nothing listens on port $port"
}

# try NAME URL: suite, push, pull, growth (by other rewards), push, pull over the earlier state; the environment says where URL is.
try() {
  local name=$1 url=$2
  rm -rf "$work/copy" "$work/grown"
  TRANCHE_STORE_URLS="$url/suite" "$work/suite" -test.run "TestEveryStore/${url%%:*}:" -test.count 1 >"$work/$name.log" || {
    tail -n 40 "$work/$name.log"
    die "$name: the suite failed"
  }
  "$work/tranche" push "$work/a" "$url/run" -q
  "$work/tranche" pull "$url/run" "$work/copy" -q
  cmp "$work/a/manifest.json" "$work/copy/manifest.json"
  cp -r "$work/copy" "$work/grown"
  "$work/tranche" rescore "$work/grown" -c "$work/contains.yaml" -q >/dev/null
  "$work/tranche" push "$work/grown" "$url/run" -q
  "$work/tranche" pull "$url/run" "$work/copy" -q
  cmp "$work/grown/manifest.json" "$work/copy/manifest.json"
  "$work/tranche" view "$work/copy" >/dev/null
  say "$name: $url: suite, push and pull, also of what it grew by, went well"
}

run() {
  install
  work=$(mktemp -d)
  trap clean EXIT
  cd "$here/.."
  go build -o "$work/tranche" ./cmd/tranche
  go test -c -o "$work/suite" ./storage/objectstore
  "$work/tranche" run examples/arithmetic/tasks.jsonl -n 8 -q -o "$work/a" >/dev/null
  echo 'reward: contains' >"$work/contains.yaml"
  unset "${!AWS_@}" "${!AZURE_@}" "${!GOOGLE_@}" STORAGE_EMULATOR_HOST
  export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=tranche AWS_SECRET_ACCESS_KEY=tranche-secret AWS_REGION=us-east-1

  serve 8331 "$home/bin/moto_server" -H 127.0.0.1 -p 8331
  export AWS_ENDPOINT_URL=http://127.0.0.1:8331
  "$home/bin/python" "$here/objectstores/read.py" make bucket
  try moto s3://bucket/runs
  "$home/bin/python" "$here/objectstores/read.py" rows bucket/runs/run/parts "$work/a/parts"

  mkdir -p "$work/versity/bucket" "$work/sidecar"
  serve 8332 "$home/versity-$versity/versitygw" --port 127.0.0.1:8332 --access tranche --secret tranche-secret posix --sidecar "$work/sidecar" "$work/versity"
  export AWS_ENDPOINT_URL=http://127.0.0.1:8332
  try versitygw s3://bucket/runs
  "$home/bin/python" "$here/objectstores/read.py" rows bucket/runs/run/parts "$work/a/parts"

  mkdir -p "$work/gcs/bucket"
  serve 8333 "$home/gcs-$gcs/fake-gcs-server" -scheme http -host 127.0.0.1 -port 8333 -backend memory -data "$work/gcs" -public-host 127.0.0.1:8333 -external-url http://127.0.0.1:8333
  STORAGE_EMULATOR_HOST=127.0.0.1:8333 try fake-gcs-server gs://bucket/runs

  serve 8334 "$home/azurite-$azurite/node_modules/.bin/azurite-blob" --silent --skipApiVersionCheck --blobPort 8334 --location "$work/azurite"
  # The account and the key are Azurite's own, known to all.
  export AZURE_STORAGE_CONNECTION_STRING="DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;BlobEndpoint=http://127.0.0.1:8334/devstoreaccount1;"
  try azurite az://bucket/runs

  TRANCHE_PUSH_KILLS=30 "$work/suite" -test.run TestAKilledPush -test.v -test.count 1 | grep 'killed of'
}

case ${1:-} in
install) install ;;
run) run ;;
*)
  echo "usage: $me install | run" >&2
  exit 2
  ;;
esac
