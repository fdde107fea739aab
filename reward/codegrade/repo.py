# A repository's own tests, run in a box that was made for them. The program under test shares this process: what it says of itself is checked
# by tests that have to fail (the canaries), and not proven. docs/rewards.md says so.


def repo():
    import os
    encode, decode, receive, send, Refused = wire()
    sink = os.open(os.devnull, os.O_WRONLY)

    def with_unittest(job):
        import unittest
        outcomes = {}

        class Result(unittest.TestResult):
            def note(self, test, how):
                outcomes.setdefault(test.id(), how)

            def addSuccess(self, test):
                self.note(test, "passed")

            def addFailure(self, test, err):
                self.note(test, "failed")

            def addError(self, test, err):
                self.note(test, "error")

            def addSkip(self, test, reason):
                self.note(test, "skipped")

            def addExpectedFailure(self, test, err):
                self.note(test, "xfailed")

            def addUnexpectedSuccess(self, test):
                self.note(test, "xpassed")

            def addSubTest(self, test, subtest, err):
                if err is not None:
                    outcomes[test.id()] = "failed"

        loader = unittest.TestLoader()
        suites = [loader.loadTestsFromName(name) for name in job["ids"] + job["canaries"]]  # all are loaded before one runs
        result = Result()
        for suite in suites:
            suite.run(result)
        return outcomes

    def with_pytest(job):
        import pytest
        outcomes = {}

        class Reporter:
            def pytest_runtest_logreport(self, report):
                if report.outcome != "passed":
                    outcomes[report.nodeid] = "x" + report.outcome if hasattr(report, "wasxfail") else report.outcome
                elif report.when == "call":
                    outcomes.setdefault(report.nodeid, "xpassed" if hasattr(report, "wasxfail") else "passed")

        names = dict.fromkeys(i.split("::")[0] for i in job["ids"] + job["canaries"])
        pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir=.", *names], plugins=[Reporter()])
        return outcomes

    def there(runner):  # "" = it can be used; the tree is not asked before the sandbox's own files, so that no file in it stands in for what a runner needs
        try:
            __import__(runner)
            return ""
        except ImportError as e:
            why = str(e)
        sys.path.append(os.getcwd())
        try:
            __import__(runner)
            return ""
        except ImportError:
            return "" if os.path.exists(runner) else why  # a tree with a runner of its own: what is wrong with that is a failed test
        finally:
            sys.path.remove(os.getcwd())

    job = receive()
    run = {"unittest": with_unittest, "pytest": with_pytest}[job["runner"]]
    lacks = there(job["runner"])
    if lacks:
        send({"bad": lacks})
        return
    sys.path.insert(0, os.getcwd())
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        outcomes = run(job)
    except BaseException as e:  # a module that cannot be loaded, or ends the process
        outcomes = {"": type(e).__name__}
    send({"done": True})
    nonce = receive()["nonce"]  # not there before the tests have ended
    send({"nonce": nonce, "outcomes": outcomes})


repo()
