import os

import pytest
from server import serve


def test_another_serves():
    serve()


def test_the_source_stays_as_it_is():
    with pytest.raises(OSError):
        open(__file__, "a")


@pytest.mark.skipif("HERMETIC_FAILS" not in os.environ, reason="ends its process")
def test_it_dies():
    os.abort()
