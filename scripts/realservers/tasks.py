"""Writes the tasks of scripts/real-servers.sh: sums after two worked ones, so that a base model goes on with the pattern of calls."""
import json
import sys


def call(n, name, **arguments):
    return {"role": "assistant", "content": None,
            "tool_calls": [{"id": f"w{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}


def result(n, text):
    return {"role": "tool", "tool_call_id": f"w{n}", "content": text}


def question(text):
    return {"role": "user", "content": f"What is {text}? Use the calculator, then submit the result."}


worked = []
for i, (text, value) in enumerate([("12 + 30", "42"), ("9 * 7", "63")]):
    worked += [question(text), call(2 * i, "calculator", expression=text), result(2 * i, value),
               call(2 * i + 1, "submit", answer=value), result(2 * i + 1, "submitted")]

for i, (text, value) in enumerate([("29 - 86", -57), ("6 * 15", 90), ("67 - 79", -12), ("20 - 22", -2), ("6 * 13", 78), ("81 + 17", 98), ("7 * 8", 56), ("45 - 19", 26)]):
    json.dump({"id": f"sum-{i}", "messages": worked + [question(text)], "tools": ["calculator", "submit"], "answer": str(value)}, sys.stdout)
    print()
