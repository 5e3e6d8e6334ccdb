package hermetic

import (
	"os"
	"testing"
)

func TestServe(t *testing.T) {
	listener, err := Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
}

func TestTheSourceStaysAsItIs(t *testing.T) {
	if os.WriteFile("server.go", nil, 0o600) == nil {
		t.Fatal("it is gone")
	}
}
