#!/bin/bash
# Plays the shared suite of sandboxes on the container engine of this machine. The engine must be here: containers get this program and a socket by
# bind mounts. Give the name of another runtime (runsc) as the first argument.
set -euo pipefail
cd "$(dirname "$0")/.."
image=tranche-sandbox-suite
docker build -q -t "$image" - <<'EOF'
FROM debian:stable-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
EOF
export CGO_ENABLED=0 # the program runs in the image, whose C library is another
TRANCHE_DOCKER_IMAGE=$image TRANCHE_DOCKER_RUNTIME=${1:-} go test -v -run '^TestDockerReal$' ./action/sandbox/sandboxtest
