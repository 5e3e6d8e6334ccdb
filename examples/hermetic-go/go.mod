// Tests that get in each other's way, unless each package has the machine to itself: `go test -exec 'husk test --' ./...`
// in this directory, with husk in PATH.
module example.org/hermetic

go 1.19
