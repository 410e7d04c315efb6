"""Runs the tests of a client of memcached against a server, or what stands for one.

usage: memcached_suite.py FOLDER SUITE PORT

FOLDER has the sources of the clients as `.ci/setup` lays them out, SUITE is pymemcache, pylibmc or python-memcached. Prints a
JSON object: the name of each test, and null or what it said when it failed. Tests that the suite itself skips are not in it.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

FOLDER, SUITE, PORT = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
# Files of tests, and further arguments.
SUITES = {
    # Those that need a server; the others need none.
    "pymemcache": (["pymemcache/test/test_integration.py"], ["-m", "integration", "--port", PORT]),
    # It asks a server at an address of its own how a cloud's cluster is configured.
    "pylibmc": (["tests"], ["--ignore", "tests/test_autoconf.py"]),
    "python-memcached": (["tests"], []),
}


class Results:
    """A plugin of pytest: what became of each test."""

    def __init__(self):
        self.tests = {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("/")[-1]
        if report.failed:
            self.tests[name] = str(report.longrepr)[-2000:]
        elif report.when == "call" and report.passed:
            self.tests.setdefault(name, None)

    def pytest_collectreport(self, report):
        if report.failed:
            self.tests[report.nodeid] = str(report.longrepr)[-2000:]


def main():
    os.environ["MEMCACHED_PORT"] = PORT  # pylibmc's tests read it.
    folder = FOLDER / SUITE
    os.chdir(folder)
    if SUITE == "python-memcached":
        redirect_memcache()
    import pytest

    files, more = SUITES[SUITE]
    results = Results()
    arguments = ["-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider", "-q"]
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        pytest.main(arguments + more + files, plugins=[results])
    if not results.tests:
        raise SystemExit(said.getvalue())
    json.dump(results.tests, sys.stdout)


def redirect_memcache():
    """python-memcached's tests have the address of the server in them."""
    import memcache

    begin = memcache.Client.__init__

    def elsewhere(self, servers, *arguments, **named):
        servers = [f"127.0.0.1:{PORT}" if server == "127.0.0.1:11211" else server for server in servers]
        begin(self, servers, *arguments, **named)

    memcache.Client.__init__ = elsewhere


main()
