"""Are two runs the same dataset? compare_runs.py RUN_A RUN_B

Reads the files that the manifests list, matches rows by key and compares every column but those that tell when and by which
way a row came to be (below). Prints counts and, on stderr, the first differences.
"""

import json
import os
import sys

import pyarrow.parquet as pq

from facts import Facts

# When, and by which way. Everything else must be equal.
ROW = {"timing", "created_at", "attempt"}
TURN = {"queue_ms", "ttft_ms", "service_ms", "retries", "cached_tokens", "endpoint"}
ACTION = {"wall_ms", "cpu_ms"}
REWARD = {"wall_ms", "cpu_ms"}


def without(d, names):
    return {k: v for k, v in d.items() if k not in names}


def load(run, f):
    with open(os.path.join(run, "manifest.json")) as file:
        manifest = json.load(file)
    rows = {}
    for path in (p["path"] for p in manifest["parts"] + manifest["failures"]):
        for r in pq.read_table(os.path.join(run, path)).to_pylist():
            key = (r["task_id"], r["round"], r["sample_index"], r["branch_index"])
            f.check(key not in rows, f"{run}: {key} is there twice")
            r = without(r, ROW)
            r["turns"] = [without(t, TURN) for t in r["turns"] or []]
            r["actions"] = [without(a, ACTION) for a in r["actions"] or []]
            r["rewards"] = [without(w, REWARD) for w in r["rewards"] or []]
            rows[key] = r
    return rows


def main():
    f = Facts()
    a, b = load(sys.argv[1], f), load(sys.argv[2], f)
    f.note("rows_a", len(a))
    f.note("rows_b", len(b))
    f.equal("keys only in the first run", sorted(a.keys() - b.keys())[:5], [])
    f.equal("keys only in the second run", sorted(b.keys() - a.keys())[:5], [])
    different = 0
    for key in sorted(a.keys() & b.keys()):
        columns = [c for c in a[key] if a[key][c] != b[key].get(c)]
        different += bool(columns)
        if columns and different <= 5:
            c = columns[0]
            f.check(False, f"{key}: columns {columns} differ; {c}: {str(a[key][c])[:300]} / {str(b[key].get(c))[:300]}")
    f.note("different", different)
    f.equal("rows that differ", different, 0)
    f.end()


main()
