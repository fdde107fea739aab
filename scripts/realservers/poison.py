"""For scripts/poison.sh: `tasks N` writes the tasks, one of them the poison; `report DIR N STATUS` says what came of a session, `failed DIR` how many have failed."""
import collections
import json
import os
import re
import sys

POISON = "poison"


def tasks(n):
    at = n // 3
    for i in range(n):
        text, more = f"What is {i} + {3 * i % 17}? " + "Think about it. " * (i % 11), {}
        if i == at:
            text, more = "Count. " + "Think about it. " * 400, {"seed": 7}
        json.dump({"custom_id": POISON if i == at else f"t{i}", "method": "POST", "url": "/v1/chat/completions",
                   "body": {"messages": [{"role": "user", "content": text}], **more}}, sys.stdout)
        print()


def read(folder):
    with open(os.path.join(folder, "rows.json")) as f:
        return json.load(f)["episodes"]


def report(folder, n, status):
    rows = read(folder)
    with open(os.path.join(folder, "deaths.txt")) as f:
        deaths = collections.Counter(re.findall(r"port (\d+) has died", f.read()))
    failed = {r["task_id"]: r for r in rows if r["status"] == "failed"}
    by = collections.Counter(t["endpoint"] for r in rows if r["status"] != "failed" for t in r["turns"])
    again = sum(t["retries"] > 0 for r in rows for t in r["turns"])
    print(f"exit {status}; {len(rows)} rows of {n} episodes, {len(rows) - len(failed)} good, {len(failed)} failed; answered by {dict(by)}; {again} answers took more than one attempt")
    for name, r in sorted(failed.items()):
        tried = [f"{a['endpoint']} {a['class']}" for a in r["fault_attempts"] or []]
        print(f"  {name}: {r['fault_class']} at stage {r['fault_stage']}; attempts: {', '.join(tried)}\n    {(r['fault_detail'] or '')[:300]}")
    print("deaths by port:", dict(deaths) or "none")
    broken = []
    if sorted(r["task_id"] for r in rows) != sorted([POISON] + [f"t{i}" for i in range(n) if i != n // 3]):
        broken.append("an episode is lost or there twice")
    if not deaths:
        broken.append("no engine died: this shows nothing")
    if len(deaths) > 1:
        broken.append(f"{len(deaths)} engines died in one session")
    if POISON not in failed:
        broken.append("the poison was answered")
    for name in failed.keys() - {POISON}:
        if failed[name]["fault_class"] != "suspect":
            broken.append(f"{name} failed as {failed[name]['fault_class']}")
    for b in broken:
        print("a law is broken:", b, file=sys.stderr)
    return 1 if broken else 0


if sys.argv[1] == "tasks":
    tasks(int(sys.argv[2]))
elif sys.argv[1] == "failed":
    print(sum(r["status"] == "failed" for r in read(sys.argv[2])))
else:
    sys.exit(report(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
