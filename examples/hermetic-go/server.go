// Package hermetic has the state of a server: a port and a file.
package hermetic

import (
	"net"
	"os"
)

// State is the file that exists while the server runs.
const State = "/tmp/hermetic-go"

// Serve fails if another process of the machine serves, or has served before.
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
