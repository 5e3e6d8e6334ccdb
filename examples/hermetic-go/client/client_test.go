// Package client has the same state, and its tests run at the same time.
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
