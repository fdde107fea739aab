"""What a run holds, out of `tranche view --json`, as a trainer should see it."""

import json


class Run:
    def __init__(self, path):
        with open(path) as file:
            self.rows = [r for r in json.load(file)["episodes"] if r["status"] not in ("failed", "cancelled")]

    def trained(self):
        """(ids, labels) of every row, in an order of its own."""
        return sorted((r["token_ids"], [i if m else -100 for i, m in zip(r["token_ids"], r["loss_mask"])]) for r in self.rows)

    def mask_sum(self):
        return sum(sum(r["loss_mask"]) for r in self.rows)

    def chats(self):
        """The messages of every row without the keys that they do not have."""
        return [clean(r["messages"]) for r in self.rows]

    def split(self):
        """Prompt and completion of every row."""
        return [(clean(r["messages"][: r["num_prompt_messages"]]), clean(r["messages"][r["num_prompt_messages"] :])) for r in self.rows]

    def tools(self):
        """The tools of every row where they are definitions; None where there are none."""
        return [json.loads(r["tools"]) if r["tools"] else None for r in self.rows]

    def tasks(self):
        return {r["task_id"]: r for r in self.rows}

    def groups(self):
        groups = {}
        for r in self.rows:
            groups.setdefault(r["group_id"], []).append(r)
        return groups


def clean(messages):
    return [{k: v for k, v in m.items() if v is not None or k == "content"} for m in messages]
