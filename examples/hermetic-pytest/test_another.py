import os

import pytest
from server import serve


def test_second_server_listens():
    serve()


def test_source_is_unchanged():
    with pytest.raises(OSError):
        open(__file__, "a")


@pytest.mark.skipif("HERMETIC_FAILS" not in os.environ, reason="ends its process")
def test_it_dies():
    os.abort()
