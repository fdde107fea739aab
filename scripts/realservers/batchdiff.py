"""Compares what `vllm run-batch` and `tranche batch` made of one file, for scripts/run-batch.sh: DIR BEGAN ENDED UP DONE, the times in seconds."""
import collections
import json
import os
import re
import sys

CHANCE = {"id", "created", "request_id", "system_fingerprint"}  # another at every try


def read(folder, name):
    with open(os.path.join(folder, name)) as f:
        return [json.loads(x) for x in f]


def shape(value, path=""):
    """The leaves of a document by path, list places left out."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from shape(v, f"{path}.{k}" if path else k)
    elif isinstance(value, list):
        for v in value:
            yield from shape(v, path + "[]")
    else:
        yield path, value


def outcome(line):
    r = line["response"] or {}
    error = "null" if line["error"] is None else type(line["error"]).__name__
    body = "null" if r.get("body") is None else "error object" if "error" in r["body"] else r["body"].get("object")
    return f"status {r.get('status_code')}, body {body}, error {error}"


def main():
    folder, (began, ended, up, done) = sys.argv[1], map(float, sys.argv[2:])
    asked, theirs, ours = (read(folder, n) for n in ("in.jsonl", "vllm.jsonl", "tranche.jsonl"))
    ids = [[x["custom_id"] for x in xs] for xs in (asked, theirs, ours)]
    print(f"{len(asked)} lines; ids in the order of the input: vllm run-batch {ids[1] == ids[0]}, tranche batch {ids[2] == ids[0]}")
    same = collections.Counter()
    paths = {"vllm run-batch": set(), "tranche batch": set()}
    print("\n| line | vllm run-batch | tranche batch |\n|---|---|---|")
    for a, b in zip(theirs, ours):
        if outcome(a) != outcome(b):
            print(f"| {a['custom_id']} | {outcome(a)} | {outcome(b)} |")
            continue
        if not b["response"] or b["response"]["status_code"] != 200:
            same["refused alike"] += 1
            continue
        x, y = (dict(shape(d["response"]["body"])) for d in (a, b))
        paths["vllm run-batch"] |= set(x)
        paths["tranche batch"] |= set(y)
        differ = [p for p in x.keys() & y.keys() if x[p] != y[p] and p.split(".")[-1] not in CHANCE and "cached" not in p and "cache" not in p]
        same["equal in every field but ids, times and cache" if not differ else "differ in " + ", ".join(sorted(differ))] += 1
    print("\nlines answered or refused alike:", dict(same))
    for name, other in (("vllm run-batch", "tranche batch"), ("tranche batch", "vllm run-batch")):
        print(f"fields of bodies only in {name}: {sorted(paths[name] - paths[other]) or 'none'}")
    for name, lines in (("vllm run-batch", theirs), ("tranche batch", ours)):
        print(f"fields of a line, {name}: {list(lines[0])}, of response: {list(lines[0]['response'])}, id {re.sub('[0-9a-f]{8,}', '…', lines[0]['id'])}")
    with open(os.path.join(folder, "report.json")) as f:
        report = json.load(f)
    print(f"\nseconds: vllm run-batch {ended - began:.1f} with its start; vllm serve started in {up - ended:.1f}, tranche batch {done - up:.1f}, of which it played {report['session']['wall_s']:.1f}")
    return 0 if ids[0] == ids[1] == ids[2] else 1


sys.exit(main())
