import os

from server import serve


def test_one_serves():
    serve()


def test_home_is_its_own():
    path = os.path.expanduser("~/hermetic-pytest")
    assert not os.path.exists(path)
    open(path, "w").close()
