"""Holds what a run on a real server stored to the laws, for scripts/real-servers.sh.

    laws.py                             the head of the table
    laws.py SERVER DIR EPISODES STATUS  its line; broken laws on stderr, and the exit status 1
"""
import collections
import json
import os
import sys

HEAD = ["server", "version", "probe requests", "good / failed", "turns", "tool calls (ran / refused)", "ways", "prefix breaks", "audit", "tokens in / out", "sampled ids"]
EXACT = {"llama": True, "vllm": True, "guidellm": False}


def load(folder, name):
    with open(os.path.join(folder, name)) as f:
        return json.load(f)


def check_row(row, broken):
    """Laws of one row."""
    name = f"{row['task_id']}/{row['sample_index']}"
    ids = row["token_ids"] or []
    for column in ("loss_mask", "logprobs", "versions"):
        if row[column] is not None and len(row[column]) != len(ids):
            broken.append(f"{name}: {len(ids)} token ids and {len(row[column])} of {column}")
    for b in row["breaks"] or []:  # where messages go the server cuts an answer's text into tokens anew
        if row["turns"][b["turn"]]["exchange"] == "ids":
            broken.append(f"{name}: turn {b['turn'] + 1} went by ids and does not extend the one before, from id {b['at']} on")
    if (row["prefix_break"] is None) != (not row["breaks"]):
        broken.append(f"{name}: prefix_break is {row['prefix_break']}, and {len(row['breaks'] or [])} breaks are kept")
    played = row["messages"][row["num_prompt_messages"]:]
    if sum(m["role"] == "assistant" for m in played) != row["num_turns"] or len(row["turns"]) != row["num_turns"]:
        broken.append(f"{name}: {row['num_turns']} turns, and not so many answers")
    wanted, turn = [], -1
    for m in played:
        if m["role"] == "assistant":
            turn += 1
            cut = row["turns"][turn]["finish_reason"] == "length"
            wanted += [] if cut else [c["id"] for c in m["tool_calls"] or []]
        elif m["role"] == "tool":
            if not wanted or wanted.pop(0) != m["tool_call_id"]:
                broken.append(f"{name}: an observation of {m['tool_call_id']}, which was not asked for then")
    if wanted and row["submitted"] is None:
        broken.append(f"{name}: no observation of {wanted}")


def laws(server, folder, episodes, status):
    rows, audit, probe = load(folder, "rows.json")["episodes"], load(folder, "audit.json"), load(folder, "probe.json")[0]
    broken = []
    if status != "0":
        broken.append(f"the run ended with {status}, or the server died" if status == "dead" else f"the run ended with {status}")
    if sorted((r["task_id"], r["sample_index"]) for r in rows) != sorted((f"sum-{i}", 0) for i in range(episodes)):
        broken.append(f"{len(rows)} rows of {episodes} episodes, or not each once")
    for row in rows:
        check_row(row, broken)
    ways = collections.Counter(t["exchange"] for r in rows for t in r["turns"])
    acted = collections.Counter("ran" if a["status"] == "ok" else "refused" for r in rows for a in r["actions"] or [])
    turns = sum(r["num_turns"] for r in rows)
    sampled = sum(sum(r["loss_mask"] or []) for r in rows)
    out = sum(t["completion_tokens"] for r in rows for t in r["turns"])
    seen = "none: no ids"
    if EXACT[server]:
        seen = ", ".join(f"{audit.get(k)} {k}" for k in ("same", "retokenised", "rewritten") if audit.get(k))
        if audit.get("rows") != len(rows) or audit.get("prompt") or audit.get("prefix_breaks") != sum(r["prefix_break"] is not None for r in rows):
            broken.append(f"the audit: {audit}")
        if not sum(acted.values()) or turns <= len(rows):
            broken.append("no tool was called, or no episode had a second turn: this run shows nothing")
        if not ways["ids"] + ways["chat"]:
            broken.append(f"no turn went with ids: {dict(ways)}")
    if server == "vllm" and sampled != out:
        broken.append(f"{sampled} sampled ids are stored, the server counts {out}")
    failed = sum(r["status"] == "failed" for r in rows)
    version = probe["version"].get("value") or "not told"
    line = [server, version, probe["calls"], f"{len(rows) - failed} / {failed}", turns, f"{acted['ran']} / {acted['refused']}",
            ", ".join(f"{n} {w}" for w, n in sorted(ways.items())), sum(len(r["breaks"] or []) for r in rows), seen,
            f"{sum(r['num_input_tokens'] for r in rows)} / {out}", sampled]
    return line, broken


def main():
    if len(sys.argv) == 1:
        print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
        return 0
    line, broken = laws(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
    print("| " + " | ".join(map(str, line)) + " |")
    for b in broken:
        print(f"{sys.argv[1]}: a law is broken: {b}", file=sys.stderr)
    return 1 if broken else 0


sys.exit(main())
