module s5cmd-of-the-tests
go 1.22
require github.com/peak/s5cmd/v2 v2.3.0
