# The answer's program, alone: it is told what to work out and says what came of it. No expected value ever comes here, so whatever the
# program does to this process it can only change what it itself says.


def candidate():
    import builtins, types
    encode, decode, receive, send, Refused = wire()
    wraps = {n: getattr(builtins, n) for n in
             ("tuple", "list", "set", "frozenset", "sorted", "dict", "len", "int", "float", "str", "bool", "sum", "abs", "max", "min", "round")}
    raisable = {id(t): n for n, t in vars(builtins).items() if isinstance(t, type) and issubclass(t, BaseException) and t.__name__ == n}
    mro = type.__dict__["__mro__"].__get__
    module = types.ModuleType("solution")  # not __main__: what stands under that name's guard is no part of a function's task
    space = module.__dict__
    sys.modules["solution"] = module

    def load(job):
        try:
            program = compile(job["source"], "<answer>", "exec", 0, True)
        except BaseException as e:  # SyntaxError, ValueError (zero bytes), RecursionError, MemoryError
            return {"stage": "compile", "raised": type(e).__name__}
        send({"nonce": job["nonce"], "stage": "load"})  # it is Python, whatever loading it does
        try:
            exec(program, space)
        except BaseException as e:
            return {"stage": "run", "raised": type(e).__name__}
        for name in job["modules"] or ():
            space.setdefault(name, __import__(name))
        try:
            exec(compile(job["setup"], "<setup>", "exec", 0, True), space)
        except BaseException as e:
            return {"stage": "setup", "raised": type(e).__name__}
        for alias, name in (job["aliases"] or {}).items():
            space.setdefault(alias, find(name))
        missing = [n for n in job["names"] or () if find(n) is None]
        return {"stage": "names", "missing": missing[0]} if missing else {"stage": "ready"}

    def find(name):
        if name in space:
            return space[name]
        solution = space.get("Solution")
        return getattr(solution(), name, None) if isinstance(solution, type) else None

    def work_out(job):
        if "expr" in job:
            return eval(compile(job["expr"], "<test>", "eval", 0, True), space), None
        args = [decode(a) for a in job["args"] or ()]
        kwargs = {k: decode(v) for k, v in (job["kwargs"] or {}).items()}
        watched = [i for i, a in enumerate(args) if job.get("watch") and type(a) in (list, dict, set, bytearray)]
        before = {i: encode(args[i]) for i in watched}
        value = find(job["call"])(*args, **kwargs)
        changed = {}
        for i in watched:
            after = encode(args[i])
            if after != before[i]:
                changed[i] = after
        for w in job["wrap"] or ():
            value = wraps[w[0]](value, *w[1:])
        return value, changed

    def answer(job):
        try:
            value, changed = work_out(job)
        except Refused as e:
            return {"refused": str(e)}
        except BaseException as e:  # kind: the class that tests which catch it know it by
            return {"raised": type(e).__name__, "kind": next(raisable[id(t)] for t in mro(type(e)) if id(t) in raisable)}
        try:
            told = {"value": encode(value)}
        except Refused as e:
            return {"refused": str(e)}
        except BaseException as e:  # of an iterator, say: the call itself did not raise it
            return {"refused": "what cannot be read: " + type(e).__name__}
        if changed:
            told["changed"] = changed
        return told

    while True:
        job = receive()
        told = load(job) if "source" in job else answer(job)
        told["nonce"] = job["nonce"]
        send(told)


candidate()
