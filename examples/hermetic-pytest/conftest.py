"""Runs tests in sandboxes: `pytest --husk`, with husk in PATH. Copy this file into your project.

    pytest --husk                     runs each test file in its own sandbox, one per processor at a time
    pytest --husk=test                runs each test in its own sandbox
    pytest --husk --husk-options='--timeout 60s --net none'

The pytest in a sandbox gets the same options. It writes pytest's reports to a file, which the outer pytest reads. So
everything that uses reports (pytest's own output, --junit-xml, -x) works as usual. Without this file,
`husk test --each -- pytest` also runs each file in its own sandbox, with husk's own output and reports, and
`husk test -- pytest` runs all tests in one sandbox.
"""

import json
import os
import shlex
import site
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("husk", "sandboxes")
    group.addoption("--husk", nargs="?", const="file", choices=["file", "test"], help="what has a sandbox of its own")
    group.addoption("--husk-options", default="", help="options of 'husk test'")
    group.addoption("--husk-reports", help="where a sandbox's pytest writes its reports; not to be typed")


def pytest_configure(config):
    if config.option.husk_reports:
        config.pluginmanager.register(Inside(config))
    elif config.option.husk and not config.option.collectonly:
        config.pluginmanager.register(Outside(config))


def python_is_in():
    """Returns the directories of this Python and its packages, which may be below a home directory."""
    places = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)), site.getusersitepackages()}
    return sorted(place for place in places if os.path.isdir(place))


class Inside:
    """Writes each report to the file that the outer pytest reads."""

    def __init__(self, config):
        self.config = config

    def pytest_runtest_logreport(self, report):
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        with open(self.config.option.husk_reports, "a") as reports:
            reports.write(json.dumps(data) + "\n")


class Outside:
    """Runs the tests in sandboxes and reads their reports."""

    def __init__(self, config):
        self.config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed and not self.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        groups = {}
        for item in session.items:
            key = item.nodeid if self.config.option.husk == "test" else item.path
            groups.setdefault(key, []).append(item)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            running = {pool.submit(self.run, items): items for items in groups.values()}
            for done in as_completed(running):
                if not session.shouldfail and not session.shouldstop:
                    self.report(running[done], *done.result())
                else:
                    for other in running:
                        other.cancel()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        return True

    def run(self, items):
        with tempfile.TemporaryDirectory(prefix="husk-") as directory:
            reports = os.path.join(directory, "reports")
            husk = ["husk", "test", "--write", directory, "--env", "PYTHONPATH"]
            husk += [word for place in python_is_in() for word in ("--read", place)]
            husk += [*shlex.split(self.config.option.husk_options), "--"]
            same = ["--rootdir", str(self.config.rootpath), "-p", "no:cacheprovider", "-q"]
            command = [*husk, sys.executable, "-m", "pytest", *same, "--husk-reports", reports]
            command += [item.nodeid for item in items]
            ended = subprocess.run(command, cwd=self.config.rootpath, capture_output=True, text=True)
            lines = open(reports).readlines() if os.path.exists(reports) else []
            return [json.loads(line) for line in lines], ended

    def report(self, items, reports, ended):
        hook = self.config.hook
        finished = set()
        for data in reports:
            # JSON has no tuples.
            for name in ("location", "longrepr"):
                data[name] = tuple(data[name]) if isinstance(data[name], list) else data[name]
            report = hook.pytest_report_from_serializable(config=self.config, data=data)
            if report.when == "setup":
                hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
                finished.add(report.nodeid)
        for item in items:
            if item.nodeid not in finished:
                # The process ended before the test did. The output of husk gives the reason.
                said = f"{ended.stderr}{ended.stdout}".strip() or f"ended with {ended.returncode}"
                report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
                hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                hook.pytest_runtest_logreport(report=report)
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
