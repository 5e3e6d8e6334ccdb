"""A server's worth of state: a port and a file."""

import socket

PORT = 8080
STATE = "/tmp/hermetic-pytest"


def serve():
    """Only one at a time can do this on a machine, and only once."""
    listener = socket.create_server(("127.0.0.1", PORT))
    with open(STATE, "x") as state:
        state.write("runs")
    return listener
