# The child of kind math_verify: one JSON object a line in, one a line out. It ends when its input does.
import json, os, sys

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what libraries print must not stand between the answers


def say(**what):
    out.write(json.dumps(what) + "\n")


try:
    import resource, time

    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    from importlib.metadata import version

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
except Exception as e:
    say(fatal=f"{type(e).__name__}: {e}")
    sys.exit(1)

CONFIG = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]


def read(text):
    # The limits of time are the parent's: the library's own only work by swallowing what they stop.
    return parse(text, CONFIG, parsing_timeout=None, raise_on_error=True)


def judge(truth, text):
    gold = read(truth)
    if not gold:
        return {"truth_unread": True}
    answer = read(text)
    if not answer:
        return {"right": False, "read": ""}
    right = verify(gold, answer, timeout_seconds=None, raise_on_error=True)
    return {"right": bool(right), "read": str(answer[0])[:200]}


say(ready=version("math-verify"), cpu=time.process_time())
for line in sys.stdin:
    ask = json.loads(line)
    began = time.process_time()
    try:
        reply = judge(ask["truth"], ask["text"])
    except MemoryError:
        reply = {"error": "MemoryError: over the limit of memory"}
    except Exception as e:
        reply = {"error": f"{type(e).__name__}: {e}"[:300]}
    say(cpu=time.process_time() - began, **reply)
