// Package hermetic is a server's worth of state: a port and a file.
package hermetic

import (
	"net"
	"os"
)

// State is where the server remembers that it runs.
const State = "/tmp/hermetic-go"

// Serve can be called once at a time on a machine, and only once.
func Serve() (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(State, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return listener, file.Close()
}
