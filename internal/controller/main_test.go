package controller

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the decisions of plans instead of comparing them")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
