"""A worker: one case a line in, one answer a line out. How near the last number of the answer is to the right one."""
import json
import re
import sys

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def judge(case):
    right = case["task"]["answer"]
    if right is None or not NUMBER.fullmatch(right):
        return {"no_verdict": "bad_ground_truth", "detail": f"{right!r} is no plain number"}
    found = NUMBER.findall(case["text"])
    if not found:
        return {"score": 0, "evidence": "no number"}
    off = abs(float(found[-1]) - float(right)) / max(abs(float(right)), 1)
    return {"score": max(0.0, 1 - off / case["options"]["within"]), "raw": off, "evidence": f"{found[-1]}, right is {right}"}


for line in sys.stdin:
    case = json.loads(line)
    print(json.dumps({"id": case["id"], **judge(case)}), flush=True)
