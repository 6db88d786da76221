package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// asChild, as the first argument, makes the test binary a child of a benchmark.
const asChild = "bench-child"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == perftestProgram {
		os.Exit(fakePerftest(os.Args[1:]))
	}
	if len(os.Args) == 3 && os.Args[1] == asChild {
		if err := Child(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err) // there is nobody else to tell
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
