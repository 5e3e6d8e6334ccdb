"""Tells husk which tests pytest has collected, and how each one ended.

husk loads this plugin in the sandbox; no file of the project is needed. Each message is a line of standard output that
begins with a token which husk has chosen. The fields of a message are in hexadecimal, so they may hold anything.
"""

import os

import pytest

# A pytest that a test starts must not send messages.
_mode, _token, *_chosen = os.environ.pop("HUSK_PYTEST", ":").split(":")
_chosen = [bytes.fromhex(word).decode("utf-8", "surrogateescape") for word in _chosen]
for _name in ("PYTEST_PLUGINS", "PYTHONPATH"):
    _before = os.environ.pop("HUSK_" + _name, "")
    os.environ.pop(_name, None)
    if _before:
        os.environ[_name] = _before

_capture = ""

# Tests run with another standard output, which pytest captures.
_output = os.dup(1)


def _hex(field):
    try:
        # Names of files need not be UTF-8.
        return str(field).encode("utf-8", "surrogateescape").hex()
    except UnicodeEncodeError:
        return str(field).encode("utf-8", "backslashreplace").hex()


def _say(kind, *fields):
    # In a shell, nobody reads messages.
    if not _token:
        return
    words = [_hex(field) for field in fields]
    line = ("\n\x1e" + " ".join([_token, kind, *words]) + "\n").encode()
    while line:
        line = line[os.write(_output, line) :]


def _path(item):
    return getattr(item, "path", None) or item.fspath


def _why(report):
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return str(why).removeprefix("Skipped: ")


@pytest.hookimpl(hookwrapper=True)
def pytest_cmdline_main(config):
    # husk runs units in parallel itself, so pytest-xdist would start too many processes.
    if getattr(config.option, "numprocesses", None):
        config.option.numprocesses = 0
    yield


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    global _capture
    _capture = config.option.capture
    if _mode == "run":
        config.args = [_chosen[0]]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if len(_chosen) > 1:
        others = [item for item in items if item.nodeid != _chosen[1]]
        items[:] = [item for item in items if item.nodeid == _chosen[1]]
        config.hook.pytest_deselected(items=others)


def pytest_collectreport(report):
    if report.failed:
        _say("error", report.nodeid, report.longreprtext)
    elif report.skipped:
        _say("skip", report.nodeid, _why(report))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    if _mode != "list":
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        _say("stop")
    for item in session.items:
        _say("item", _path(item), item.nodeid)
    _say("listed")
    return True


def pytest_runtest_logstart(nodeid):
    _say("start", nodeid, _capture)


def pytest_runtest_logreport(report):
    outcome, why, text = report.outcome, "", ""
    if hasattr(report, "wasxfail") and outcome == "skipped":
        why = ("xfail " + report.wasxfail).strip()
    elif outcome == "skipped":
        why = _why(report)
    if outcome == "failed":
        text = report.longreprtext + "\n"
    if report.when == "teardown":
        text += "".join(f"---- {title} ----\n{content}\n" for title, content in report.sections)
    _say(report.when, report.nodeid, outcome, why, text, report.duration)
