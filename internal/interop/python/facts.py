"""How the programs of this folder report: facts as one JSON object on stdout, every fault a line on stderr, exit 1 on any."""

import json
import sys
import traceback


class Facts:
    def __init__(self):
        self.values = {}
        self.faults = []
        self.checks = 0

    def note(self, name, value):
        self.values[name] = value
        return value

    def check(self, true, fault):
        self.checks += 1
        if not true:
            self.faults.append(fault)
        return bool(true)

    def equal(self, what, got, want):
        return self.check(got == want, f"{what}: expected {want!r}, got {got!r}")

    def run(self, name, part, *args):
        """Runs one part; an exception is a fault of that part, and the next ones still run."""
        try:
            return part(*args)
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            self.faults.append(f"{name}: {type(e).__name__}: {e} ({last.filename}:{last.lineno})")

    def end(self):
        self.values["checks"] = self.checks
        for f in self.faults:
            print("FAULT", f, file=sys.stderr)
        json.dump(self.values, sys.stdout, indent=1)
        print()
        sys.exit(1 if self.faults else 0)
