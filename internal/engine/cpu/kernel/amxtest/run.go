package amxtest

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// variable is set in the environment of emulated processes.
const variable = "DYNAMOD_TEST_AMX_EMULATED"

// Emulated reports whether this process was started by [Run].
func Emulated() bool { return os.Getenv(variable) != "" }

// Counts holds the numbers of executed instructions and of faults.
type Counts struct {
	ops    [numOps]int
	faults int
}

// Products returns the number of instructions that multiplied tiles of bf16.
func (c Counts) Products() int { return c.ops[tdpbf16ps] }

// BytesProducts returns the number of instructions that multiplied tiles of bytes.
func (c Counts) BytesProducts() int {
	return c.ops[tdpbuud] + c.ops[tdpbusd] + c.ops[tdpbsud] + c.ops[tdpbssd]
}

// Configured returns the number of times that tiles were configured.
func (c Counts) Configured() int { return c.ops[ldtilecfg] }

// Released returns the number of times that tiles were given back.
func (c Counts) Released() int { return c.ops[tilerelease] }

// Faults returns the number of instructions that accessed memory that was not there.
func (c Counts) Faults() int { return c.faults }

// limit bounds a run where the test has no deadline.
const limit = 5 * time.Minute

// Run runs the tests of this binary that match, in a process of their own with tiles,
// and fails when one of them does or when none of them used tiles. It skips the test
// where the system does not let it trace a process, and under the race detector, which
// sees nothing of the instructions that are emulated and takes minutes around them.
func Run(t *testing.T, tests string, env ...string) Counts {
	t.Helper()
	if Emulated() {
		t.Fatal("an emulated process starts no other")
	}
	if patience.RaceDetector {
		t.Skip("the race detector does not see what is emulated")
	}
	deadline := time.Now().Add(limit)
	if d, ok := t.Deadline(); ok && d.Before(deadline) {
		deadline = d.Add(-time.Second)
	}
	args := []string{os.Args[0], "-test.run=" + tests, "-test.v=" + verbose()}
	out, counts, err := trace(args, environment(append(env, variable+"=1")), deadline)
	switch {
	case errors.Is(err, errDenied):
		t.Skip(err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case bytes.Contains(out, []byte("no tests to run")):
		t.Errorf("%s names no test", tests)
	case counts.Products()+counts.BytesProducts() == 0:
		t.Errorf("no product on tiles\n%s", out)
	case testing.Verbose():
		t.Logf("%s", out)
	}
	// A kernel that faults is left before it releases its tiles.
	if kept := counts.Configured() - counts.Released(); kept < 0 || kept > counts.Faults() {
		t.Errorf("tiles were configured %d times and released %d times, with %d faults", counts.Configured(), counts.Released(), counts.Faults())
	}
	return counts
}

// environment is that of this process with some variables set: a process reads the
// first of a name.
func environment(set []string) []string {
	out := slices.Clone(set)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
			out = append(out, v)
		}
	}
	return out
}

func verbose() string {
	if testing.Verbose() {
		return "true"
	}
	return "false"
}
