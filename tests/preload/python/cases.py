"""Runs test cases of CPython's own suite, or of another package, and writes what became of each.

    cases.py RESULTS [--pytest] [--pairs] MODULE... [-x PATTERN]... [-k PATTERN]... [-o NAME]

RESULTS gets a line for each case when it has ended: its name, a tab, one word (ok, skipped, failed, error, expected,
unexpected). Both runs that are compared use this program, so that it only has to tell cases apart, not to judge them.
Patterns are matched against names of cases as a shell does; -x leaves cases out, -k leaves all others out;
-o runs one case alone, by its whole name. A name that ends with .* stands for all modules test_* of a package. --pytest is for
modules and packages whose cases are functions. With --pairs the pairs of sockets that
cases ask for are connections over TCP which have moved some bytes, so that suites without any of these are about them, too.
"""

import fnmatch
import importlib
import os
import pkgutil
import socket
import sys
import unittest


def cases(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


class Noted(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file
        self.words = {}

    def note(self, test, word):
        # The worst of several words stays: a case may fail in itself and again while it cleans up.
        order = ["ok", "expected", "skipped", "unexpected", "failed", "error"]
        name = test.id()
        known = self.words.get(name, "ok")
        self.words[name] = max(known, word, key=order.index)

    def stopTest(self, test):
        super().stopTest(test)
        word = self.words.pop(test.id(), "ok")
        self.file.write(f"{test.id()}\t{word}\n")
        self.file.flush()

    def addFailure(self, test, error):
        self.note(test, "failed")
        print(test.id(), self._exc_info_to_string(error, test), file=sys.stderr, flush=True)

    def addError(self, test, error):
        self.note(test, "error")
        print(test.id(), self._exc_info_to_string(error, test), file=sys.stderr, flush=True)
        if not hasattr(test, "_testMethodName"):
            # A fixture of a class or module: its cases never start.
            self.file.write(f"{test.id()}\terror\n")

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.note(test, "expected")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected")

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(test, error)


class Plugin:
    """Writes the outcome of each case that pytest has run."""

    def __init__(self, file, wanted):
        self.file, self.wanted, self.words = file, wanted, {}

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if self.wanted(item.nodeid)]

    def pytest_runtest_logreport(self, report):
        word = {"passed": "ok", "skipped": "skipped", "failed": "failed"}[report.outcome]
        order = ["ok", "skipped", "failed"]
        self.words[report.nodeid] = max(self.words.get(report.nodeid, "ok"), word, key=order.index)
        if report.failed:
            print(report.nodeid, report.longreprtext, file=sys.stderr, flush=True)
        if report.when == "teardown":
            self.file.write(f"{report.nodeid}\t{self.words[report.nodeid]}\n")
            self.file.flush()


def pair(*kinds, local=socket.socketpair):
    """As socket.socketpair, over TCP where no other family was asked for."""
    if any(kinds):
        return local(*kinds)
    with socket.create_server(("127.0.0.1", 0)) as door:
        one = socket.create_connection(door.getsockname())
        other, _ = door.accept()
    for end in (one, other):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for turn in range(6):
        for sender, receiver in ((one, other), (other, one)):
            sender.sendall(b"%08d" % turn)
            assert receiver.recv(8, socket.MSG_WAITALL) == b"%08d" % turn
    return one, other


def by_pytest(results, modules, wanted):
    import pytest
    # Names of cases begin where packages do: two of these may have modules of one name.
    top = importlib.import_module(modules[0].partition(".")[0])
    root = os.path.dirname(os.path.dirname(top.__file__))
    with open(results, "w") as file:
        words = ["-p", "no:cacheprovider", "-q", "--continue-on-collection-errors", f"--rootdir={root}", "--pyargs"]
        pytest.main(words + modules, plugins=[Plugin(file, wanted)])
    sys.stdout.flush()
    os._exit(0)


def expanded(name, without):
    if not name.endswith(".*"):
        return [name]
    package = importlib.import_module(name[:-2])
    found = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    found = [f"{name[:-2]}.{module}" for module in found if module.startswith("test_")]
    # Some fail as soon as they are loaded.
    return [name for name in found if not any(fnmatch.fnmatchcase(name, pattern) for pattern in without)]


def main():
    words = sys.argv[1:]
    results, modules, without, only, one = words.pop(0), [], [], [], None
    while words:
        word = words.pop(0)
        if word in ("-x", "-k"):
            (without if word == "-x" else only).append(words.pop(0))
        elif word == "-o":
            one = words.pop(0)
        else:
            modules.append(word)
    modules = [name for word in modules for name in expanded(word, without)]

    def is_wanted(name):
        if one and name != one:
            return False
        left_out = any(fnmatch.fnmatchcase(name, pattern) for pattern in without)
        return not left_out and (not only or any(fnmatch.fnmatchcase(name, pattern) for pattern in only))

    if "--pairs" in modules:
        modules.remove("--pairs")
        socket.socketpair = pair
    if "--pytest" in modules:
        by_pytest(results, [name for name in modules if name != "--pytest"], is_wanted)
    try:
        from test import support
        support.use_resources = []
        support.verbose = 0
    except ImportError:
        pass
    wanted = unittest.TestSuite()
    for test in cases(unittest.defaultTestLoader.loadTestsFromNames(modules)):
        if is_wanted(test.id()):
            wanted.addTest(test)
    with open(results, "w") as file:
        wanted.run(Noted(file))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that a case has left behind do not keep this from ending.
    os._exit(0)


main()
