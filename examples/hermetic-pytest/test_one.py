import os

from server import serve


def test_first_server_listens():
    serve()


def test_home_is_private():
    path = os.path.expanduser("~/hermetic-pytest")
    assert not os.path.exists(path)
    open(path, "w").close()
