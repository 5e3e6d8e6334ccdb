// Package client uses the same port and file, and its tests run at the same time.
package client

import (
	"testing"

	"example.org/hermetic"
)

func TestServe(t *testing.T) {
	listener, err := hermetic.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
}
