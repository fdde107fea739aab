# The test's own code, in a sandbox of its own and without the answer: first it is taken apart into calls with the values that are expected
# of them, then what cannot be so taken apart is run here, with the answer's functions called through the host.


def trial():
    import ast, builtins, random
    encode, decode, receive, send, Refused = wire()
    standard = set(getattr(sys, "stdlib_module_names", ())) or {
        "sys", "math", "re", "os", "random", "string", "collections", "itertools", "functools", "operator", "heapq", "bisect", "copy", "datetime", "decimal", "fractions"}
    plain = {"tuple", "list", "set", "frozenset", "sorted", "dict", "len", "int", "float", "str", "bool", "sum", "abs", "max", "min"}

    def loaded(node):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}

    def bound(node):
        names = set()
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
                names.add(n.id)
            elif isinstance(n, ast.arg):
                names.add(n.arg)
            elif isinstance(n, ast.alias):
                names.add((n.asname or n.name).split(".")[0])
            elif isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                names.add(n.name)
            elif isinstance(n, ast.ExceptHandler) and n.name:
                names.add(n.name)
        return names

    def has(node, *kinds):
        return any(isinstance(n, kinds) for n in ast.walk(node))

    def returns(body):  # outside of functions of its own
        for s in body:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                continue
            if isinstance(s, (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)) or returns(ast.iter_child_nodes(s)):
                return True
        return False

    class Suite:
        # trusted: what the task itself defines. open: names that hang on the answer, by being its own or by being made of them. Of its own
        # names, only those under test are called from here; the others (its classes) may stand in the arguments of such a call and nowhere else.
        def __init__(self, job):
            self.trusted, self.open, self.own, self.modules = {"__name__": "trial"}, set(), set(), set()
            self.under, self.made, self.unfit, self.lost = set(), set(), "", ""
            self.entry, self.param, self.body, self.whole = job["entry"], "", [], None
            random.seed(job["seed"])
            self.prelude(job["prelude"])
            if job["setup"]:
                self.setup(ast.parse(job["setup"]).body)
            self.split(ast.parse(job["tests"]).body)

        def prelude(self, text):
            for end in ("", "\n    pass\n", "\n\tpass\n"):
                try:
                    program = compile(text + end, "<prompt>", "exec", 0, True)
                    body = ast.parse(text + end).body
                    break
                except (SyntaxError, ValueError):
                    continue
            else:
                return  # a prompt in words
            if any(isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) for s in body):  # else it is words that happen to be Python
                exec(program, self.trusted)
            self.trusted.pop(self.entry, None)

        def setup(self, body):  # it is run after the answer too, which may define what it needs
            for s in body:
                if self.free(s) & (self.open | self.own):
                    self.own |= bound(s)
                    self.made |= bound(s)
                else:
                    self.do(s)

        def split(self, body):
            checks = [s for s in body if isinstance(s, ast.FunctionDef) and s.name == "check" and len(s.args.args) == 1]
            if not checks:
                self.body = body
                self.test_of({self.entry} if self.entry else self.shadowed(body) or self.common(body))
                return
            check = checks[-1]
            self.param = check.args.args[0].arg
            self.test_of({self.param, self.entry})
            for s in body:
                if s is check or isinstance(s, ast.Expr) and "check" in loaded(s):
                    continue
                self.do(s)
            self.body = check.body
            if returns(check.body):
                self.whole = check
                self.body = []

        def test_of(self, names):
            self.under = names - {""}
            self.own |= self.under

        # Where no function is named: the one that every statement calls which calls what nobody defines. Classes go by their capital.
        def common(self, body):
            mine = self.made.union(*map(bound, body))
            sets = []
            for s in body:
                called = {n.func.id for n in ast.walk(s) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
                alien = {n for n in loaded(s) - mine - set(self.trusted) - set(vars(builtins)) if n in called or n not in standard}
                if alien:
                    sets.append(alien & called or alien)
            names = set.intersection(*sets) if sets else set()
            if len(names) > 1:
                names = {n for n in names if not n[0].isupper()}
            if sets and len(names) != 1:
                raise NameError("which of %s is tested? name the function" % ", ".join(sorted(set().union(*sets))))
            return names

        # What runs here can only call the functions under test: anything else that nobody defines would be whatever the answer makes of it.
        def fit(self, names):
            alien = sorted(names & (self.own - self.under))
            if alien:
                raise NameError("the tests use %s, which they do not define" % ", ".join(alien))

        # A function under test may have a builtin's name (MBPP's sum): where tests call nothing else, that is what they call.
        def shadowed(self, body):
            if any(loaded(s) - set(vars(builtins)) - set(self.trusted) - standard for s in body):
                return set()
            heads = [s.test.left if isinstance(s.test, ast.Compare) else s.test for s in body if isinstance(s, ast.Assert)]
            names = {h.func.id for h in heads if isinstance(h, ast.Call) and isinstance(h.func, ast.Name)}
            return names if len(names) == 1 else set()

        def do(self, s):
            exec(compile(ast.Module([s], []), "<tests>", "exec", 0, True), self.trusted)

        # free names of a statement. One that nobody defines is a module of the standard library or else the answer's own.
        def free(self, node):
            names = loaded(node) - (bound(node) - self.open if isinstance(node, ast.stmt) else bound(node))
            called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
            for n in names - set(self.trusted) - self.open - self.own - set(vars(builtins)):
                if n in standard and n != self.entry and n not in called:
                    self.trusted[n] = __import__(n)
                    self.modules.add(n)
                else:
                    self.own.add(n)
            return names

        def closed(self, node):
            return not self.free(node) & (self.open | self.own)

        def value(self, node):
            return eval(compile(ast.Expression(node), "<tests>", "eval", 0, True), self.trusted)

        # names of the task's own variables that a statement could change.
        def touched(self, node):
            fixed = (int, float, complex, str, bytes, tuple, frozenset, type(None), type, type(sys), type(len), type(returns))
            return {n for n in loaded(node) if n in self.trusted and not isinstance(self.trusted[n], fixed)}

        # Each statement is dropped, done now, kept for the run here (do), or a test.
        def plan(self):
            if self.whole is not None:
                self.fit(self.free(self.whole))
                return [{"kind": "here", "at": 0}]
            steps, later = [], self.later()
            for at, s in enumerate(self.body):
                if isinstance(s, ast.Pass) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant):
                    continue
                if isinstance(s, ast.Assert) and isinstance(s.test, ast.Constant) and s.test.value:
                    continue  # HumanEval's `assert True, "…"` says nothing
                step = self.step(at, s, later[at])
                if step:
                    steps.append(step)
            return steps

        # For each statement the names that those behind it use: sets are shared, as there may be thousands of statements.
        def later(self):
            sets, names = [], frozenset()
            for s in reversed(self.body):
                sets.append(names)
                more = loaded(s)
                if not more <= names:
                    names = names | more
            return sets[::-1]

        def step(self, at, s, later):
            if not self.free(s) & (self.open | self.own):
                self.do(s)  # an assert among them that fails is the task's fault
                return None if isinstance(s, ast.Assert) else {"kind": "do", "at": at}
            changed = self.touched(s) & later
            if isinstance(s, ast.Assert):
                apart = None if changed else self.apart(s)
                self.open |= changed
                if not apart:
                    self.fit(self.free(s))
                return apart or {"kind": "here", "at": at}
            self.fit(self.free(s))
            self.open |= bound(s) | changed
            return {"kind": "here" if self.tests(s) else "do", "at": at}

        # Whether a statement that hangs on the answer can fail for what the answer said: a call that is only made proves nothing.
        def tests(self, s):
            if isinstance(s, (ast.FunctionDef, ast.ClassDef)):
                return False
            if not isinstance(s, ast.Expr):
                return has(s, ast.Assert, ast.Raise)
            f = s.value.func if isinstance(s.value, ast.Call) else None
            if isinstance(f, ast.Attribute):
                return "assert" in f.attr.lower()
            return isinstance(f, ast.Name) and f.id not in self.own and f.id not in vars(builtins)

        def apart(self, s):
            try:
                return self.compared(s.test)
            except Exception:  # what cannot be worked out beforehand is run here
                return None

        def compared(self, t):
            if isinstance(t, ast.UnaryOp) and isinstance(t.op, ast.Not):
                return self.test(t.operand, "false")
            if not isinstance(t, ast.Compare):
                return self.test(t, "true")
            if len(t.ops) != 1:
                return None
            op, left, right = t.ops[0], t.left, t.comparators[0]
            if isinstance(op, ast.Eq):
                if self.closed(left):
                    left, right = right, left
                return self.test(left, "equal", right)
            if isinstance(op, ast.Is) and isinstance(right, ast.Constant) and right.value in (None, True, False):
                return self.test(left, "is", right)
            if isinstance(op, (ast.Lt, ast.LtE)):
                return self.near(left, right, isinstance(op, ast.LtE))
            return None

        def near(self, left, bound_, reached):  # abs(f(x) - want) < bound
            ok = (isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "abs" and len(left.args) == 1
                  and isinstance(left.args[0], ast.BinOp) and isinstance(left.args[0].op, ast.Sub) and self.closed(bound_))
            if not ok or "abs" in self.trusted:
                return None
            a, b = left.args[0].left, left.args[0].right
            if self.closed(a):
                a, b = b, a
            step = self.test(a, "near", b)
            if step:
                within, want = self.value(bound_), self.value(b)
                if not all(type(v) in (int, float) for v in (within, want)):
                    return None
                step["within"], step["reached"] = encode(float(within)), reached
            return step

        def test(self, call, rule, want=None):
            if want is not None and not self.closed(want):
                return None
            step = self.call(call)
            if step is None:
                return None
            step.update(kind="call", rule=rule)
            if want is not None:
                step["want"] = encode(self.value(want))
            return step

        def call(self, node):  # the answer's function on values, within plain builtins; None for anything else
            wrap, inner = [], node
            while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id not in self.own and not inner.keywords:
                n = inner.func.id
                if n in self.trusted or n in self.open:
                    return None
                if n in plain and len(inner.args) == 1:
                    wrap.insert(0, [n])
                elif n == "round" and len(inner.args) == 2 and isinstance(inner.args[1], ast.Constant) and type(inner.args[1].value) is int:
                    wrap.insert(0, [n, inner.args[1].value])
                else:
                    return None
                inner = inner.args[0]
            if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in self.under):
                return None
            parts = inner.args + [k.value for k in inner.keywords]
            if any(isinstance(a, ast.Starred) for a in parts) or any(k.arg is None for k in inner.keywords):
                return None
            if all(self.closed(a) for a in parts):
                try:
                    return {"call": self.called(inner.func.id), "wrap": wrap, "args": [encode(self.value(a)) for a in inner.args],
                            "kwargs": {k.arg: encode(self.value(k.value)) for k in inner.keywords}}
                except Refused:
                    pass  # a function as an argument, say: it is made where it is used
            names = self.free(node)
            if names & (self.open | (set(self.trusted) - self.modules)):
                return None  # what the task defines is not to be taken from the answer
            return {"expr": ast.unparse(node)}

        def called(self, name):
            return self.entry if name == self.param else name

        def told(self):
            steps = self.plan()
            return {"steps": steps, "names": sorted({s["call"] for s in steps if "call" in s}), "param": self.param,
                    "modules": sorted(self.modules), "own": sorted(self.under)}

        # The steps that were not taken apart, with the answer's names bound to calls through the host; one result for each test.
        def here(self, job):
            space = self.trusted
            space.update({n: __import__(n) for n in job["modules"]})
            space.update({n: self.remote(self.called(n)) for n in job["own"]})
            if self.whole is not None:
                self.do(self.whole)
                return [self.verdict(lambda: space["check"](space[self.param]))]
            results = []
            for step in job["steps"]:
                program = compile(ast.Module([self.body[step["at"]]], []), "<tests>", "exec", 0, True)
                before = self.lost  # of what the tests need: then so are all behind it
                how = self.verdict(lambda: exec(program, space))
                if step["kind"] == "here":
                    results.append(how)
                    self.lost = before
            return results

        # An argument that cannot be sent is the tests' fault (a function made in a loop), unless what the answer returned made it too large.
        def sent(self, value):
            try:
                return encode(value)
            except Refused as e:
                if not e.size:
                    self.unfit = "an argument is " + str(e)
                raise

        # A test with a call that came to nothing is lost, whatever it catches.
        def verdict(self, do):
            try:
                do()
                return self.lost
            except BaseException as e:
                return self.lost or getattr(e, "said", None) or type(e).__name__

        def remote(self, name):
            def call(*args, **kwargs):
                if self.lost:
                    raise Lost
                send({"call": name, "args": [self.sent(a) for a in args],
                      "kwargs": {k: self.sent(v) for k, v in kwargs.items()}, "wrap": []})
                told = receive()
                if "value" not in told:
                    e = raised(told["raised"])
                    if e is None:
                        self.lost = told["said"]
                        raise Lost
                    e.said = told["said"]
                    raise e
                value = decode(told["value"])
                if value is None:  # what works in place returns nothing; else an argument could be changed to suit the result
                    for at, after in told.get("changed", {}).items():
                        restore(args[int(at)], decode(after))
                return value
            return call

    class Lost(BaseException):  # a call that ended its program or its time, or returned what cannot be told: nobody raised anything
        pass

    # The exception that the answer's function raised, as far as it is of a builtin class; None where it raised none.
    def raised(name):
        kind = getattr(builtins, name, None)
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            return None
        if issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
            kind = kind.__base__  # an end of iteration would end a loop of the tests early, as if all were well
        for k in kind.__mro__:  # some are not made of a text
            try:
                return k("the answer's function raised it")
            except TypeError:
                pass

    def restore(old, new):  # what the function did to its argument
        if isinstance(old, (list, bytearray)):
            old[:] = new
        else:
            old.clear()
            old.update(new)

    job = receive()
    try:
        suite = Suite(job)
        if job["op"] == "apart":
            told = suite.told()
        else:
            results = suite.here(job)
            told = {"bad": suite.unfit} if suite.unfit else {"results": results}
    except BaseException as e:
        told = {"bad": type(e).__name__ + ": " + str(e)[:150]}
    send(told)


trial()
