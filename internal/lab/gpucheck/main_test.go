package gpucheck

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// The test binary is a process for cases when this is set. What it holds is the harm that
// comes to it: a word and what it befalls.
const asChild = "TEST_GPUCHECK_CHILD"

func TestMain(m *testing.M) {
	if harm := os.Getenv(asChild); harm != "" {
		if err := child(context.Background(), os.Stdin, os.Stdout, func(s spec) (driver.Driver, error) { return harmed(s, harm) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// harmed is the pretended driver, with a kernel that does harm.
func harmed(s spec, harm string) (driver.Driver, error) {
	what, kernel, _ := strings.Cut(harm, " ")
	if what == "unusable" {
		return nil, fmt.Errorf("%w: there is none in this test", driver.ErrNoLibrary)
	}
	var stuck *stuckDriver
	d, err := pretendWith(func(all []fake.Kernel) {
		i := slices.IndexFunc(all, func(k fake.Kernel) bool { return k.Name == kernel })
		if i < 0 {
			return
		}
		run := all[i].Run
		switch what {
		case "wrong": // a value is off
			all[i].Run = func(c *fake.Call) {
				out := c.Pointer()
				c.Rewind()
				run(c)
				c.Write(out, 2)[1] ^= 1
			}
		case "outside": // writes behind its result
			all[i].Run = func(c *fake.Call) {
				out := c.Pointer()
				c.Rewind()
				run(c)
				c.Write(out-1, 1)[0]++
			}
		case "lost":
			all[i].Run = func(c *fake.Call) { c.Write(1, 1) }
		case "crash":
			all[i].Run = func(*fake.Call) {
				fmt.Fprintln(os.Stderr, "farewell")
				os.Exit(42)
			}
		case "panic":
			all[i].Run = func(*fake.Call) { panic("no more") }
		case "silent":
			all[i].Run = func(*fake.Call) { select {} }
		case "hang":
			all[i].Run = func(c *fake.Call) { run(c); stuck.hangs = true }
		}
	})
	if err != nil || what != "hang" {
		return d, err
	}
	stuck = &stuckDriver{Driver: d}
	return stuck, nil
}

// stuckDriver is one whose work does not end any more once a kernel hangs.
type stuckDriver struct {
	driver.Driver
	hangs bool
}

func (d *stuckDriver) EventQuery(device int, event uint64) (bool, error) {
	done, err := d.Driver.EventQuery(device, event)
	return done && !d.hangs, err
}

// long limits the time that tests wait for an event that must happen.
const long = time.Minute
