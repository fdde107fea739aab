"""Writes the tasks with two worked ones before each, for a base model that goes on with the pattern: worked.py api|fenced|python <tasks.jsonl"""
import json
import sys

form = sys.argv[1]


def call(n, name, **arguments):
    if form == "api":
        return {"role": "assistant", "content": None,
                "tool_calls": [{"id": f"w{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}
    body = "```tool\n" + json.dumps({"name": name, "arguments": arguments}) + "\n```"
    if form == "python":
        body = "<answer>" + arguments["answer"] + "</answer>" if name == "submit" else "```python\n" + arguments["code"] + "\n```"
    return {"role": "assistant", "content": body}


def result(n, text):
    if form == "api":
        return {"role": "tool", "tool_call_id": f"w{n}", "content": text}
    return {"role": "user", "content": "```output\n" + text + "\n```"}


worked = []
for i, text in enumerate(["(1 + 2) * 3 - 4 * 3", "(5 + 6) * 2 - 7 * 2"]):
    value = str(eval(text))
    worked += [{"role": "user", "content": f"What is {text}? Work it out with Python, then submit the result."},
               call(2 * i, "python", code=f"print({text})"), result(2 * i, value + "\n"), call(2 * i + 1, "submit", answer=value), result(2 * i + 1, "submitted")]

for line in sys.stdin:
    task = json.loads(line)
    task["messages"] = worked + [{"role": "user", "content": task.pop("prompt")}]
    print(json.dumps(task))
