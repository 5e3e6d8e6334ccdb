"""The state of a server: a port and a file."""

import socket

PORT = 8080
STATE = "/tmp/hermetic-pytest"


def serve():
    """Fails if another process of the machine serves, or has served before."""
    listener = socket.create_server(("127.0.0.1", PORT))
    with open(STATE, "x") as state:
        state.write("runs")
    return listener
