package bench

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// spinHere takes processor time under a name of its own.
//
//go:noinline
func spinHere(until time.Time) (n int) {
	for time.Now().Before(until) {
		n++
	}
	return n
}

// A profile names the functions that took the time, also those that called them.
func TestProfileNamesFunctions(t *testing.T) {
	stacks, err := profiled(func() error {
		spinHere(time.Now().Add(400 * time.Millisecond))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var spent time.Duration
	for _, s := range stacks {
		named := func(end string) bool {
			return slices.ContainsFunc(s.functions, func(f string) bool { return strings.HasSuffix(f, end) })
		}
		if named("bench.spinHere") && named("bench.TestProfileNamesFunctions.func1") {
			spent += s.spent
		}
	}
	if spent < 10*time.Millisecond || spent > 2*time.Second {
		t.Errorf("the function took %s by the profile, 400 ms by the clock", spent)
	}
	wrong := errors.New("wrong")
	if _, err := profiled(func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the error of what is profiled: %v", err)
	}
}

// What is no profile is an error.
func TestBrokenProfile(t *testing.T) {
	if _, err := readProfile(strings.NewReader("text")); !errors.Is(err, errProfile) {
		t.Errorf("no gzip: %v", err)
	}
	for _, b := range [][]byte{{0xff}, {0x12, 5, 1}, {0x0f}, {0x09, 1}, {0x12, 2, 0x0a, 9}, {0x12, 2, 0x08, 1}} {
		p := profile{functions: map[uint64]uint64{}, locations: map[uint64][]uint64{}}
		err := p.read(b)
		if !bytes.Equal(b, []byte{0x12, 2, 0x08, 1}) && !errors.Is(err, errProfile) {
			t.Errorf("% x: %v", b, err)
		}
	}
}
