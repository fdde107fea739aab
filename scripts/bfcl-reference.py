#!/usr/bin/env python3
"""Calls made by rule from BFCL's right answers, with the verdicts of its own checker, as JSON lines.

    pip download --no-deps bfcl-eval==2026.3.23    # unpack it into FOLDER
    bfcl-reference.py FOLDER ../shared/data/tasks-bfcl 12 >calls.jsonl    # 12 to each task
    TRANCHE_BFCL_REFERENCE=$PWD/calls.jsonl go test ./reward/textgrade -run AgreesWithBFCL -v

Of the package only ast_checker.py is read; what it imports (settings of models, Java) is left out.
"""
import copy
import enum
import json
import pathlib
import random
import re
import sys


def checker(folder):
    source = (pathlib.Path(folder) / "bfcl_eval/eval_checker/ast_eval/ast_checker.py").read_text()
    language = enum.Enum("Language", "PYTHON JAVA JAVASCRIPT")
    underscores = type("Model", (), {"underscore_to_dot": True})
    space = {"re": re, "Language": language, "MODEL_CONFIG_MAPPING": {"model": underscores}, "JAVA_TYPE_CONVERSION": {}, "JS_TYPE_CONVERSION": {}}
    exec(source[source.index("#### Constants") :], space)
    return lambda tools, calls, truth, kind: space["ast_checker"](tools, calls, truth, language.PYTHON, kind, "model")["valid"]


def chosen(value, rng):
    """One of the allowed values, inside of objects too."""
    if isinstance(value, dict):
        return {key: chosen(rng.choice(allowed), rng) for key, allowed in value.items()}
    return [chosen(v, rng) for v in value] if isinstance(value, list) else value


def changed(v, rng):
    if isinstance(v, bool):
        return rng.choice([v, not v, int(v), str(v)])
    if isinstance(v, (int, float)):
        return rng.choice([v, float(v), int(v), v + 1, v + 0.5, str(v)])
    if isinstance(v, str):
        return rng.choice([v, v.upper(), v.replace(" ", "-"), v + ".", v + "x", " " + v, v.replace("'", '"'), [v], None])
    if isinstance(v, list):
        floats = [float(x) if type(x) is int else x for x in v]
        return rng.choice([v, v[::-1], v + v[:1], v[:-1], [changed(x, rng) for x in v], floats, "x"])
    key = rng.choice(list(v))
    rest = {k: x for k, x in v.items() if k != key}
    return rng.choice([v, rest, {**v, "zz": 1}, {**v, key: changed(v[key], rng)}])


def made(truth, rng):
    calls = []
    for right in truth:
        for name, args in right.items():
            values = {arg: chosen(rng.choice(allowed), rng) for arg, allowed in args.items()}
            calls.append({name.replace(".", "_"): {arg: v for arg, v in values.items() if v != ""}})
    one = rng.choice(calls)
    (name, args), change = next(iter(one.items())), rng.choice(["none", "value", "value", "value", "missing", "extra", "order", "twice", "name"])
    if change == "value" and args:
        arg = rng.choice(list(args))
        args[arg] = changed(args[arg], rng)
    elif change == "missing" and args:
        args.pop(rng.choice(list(args)))
    elif change == "extra":
        args["zz"] = 1
    elif change == "order":
        rng.shuffle(calls)
    elif change == "twice":
        calls.append(copy.deepcopy(one))
    elif change == "name":
        one[name + "_"] = one.pop(name)
    return json.loads(json.dumps(calls))


def main(folder, data, each):
    valid, rng = checker(folder), random.Random(3)
    for kind in ("simple_python.first200", "parallel.first100"):
        tasks, answers = (open(pathlib.Path(data) / f"BFCL_v4_{kind}{end}.jsonl") for end in ("", ".answers"))
        for task, answer in zip(map(json.loads, tasks), map(json.loads, answers)):
            for _ in range(int(each)):
                truth, calls = answer["ground_truth"], made(answer["ground_truth"], rng)
                verdict = valid(task["function"], calls, truth, kind.split("_")[0])
                print(json.dumps({"id": task["id"], "function": task["function"], "truth": truth, "calls": calls, "valid": verdict}))


if __name__ == "__main__":
    main(*sys.argv[1:])
