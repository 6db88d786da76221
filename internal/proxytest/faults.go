package proxytest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// Client is a client whose connections go through a [Proxy], as [Faults] knows it.
type Client struct {
	// Call does something that others can see, with a number that no other call has. Nil
	// means that the server has confirmed it.
	Call func(ctx context.Context, n int) error
	// Seen returns how often each number has arrived, seen from behind the proxy.
	Seen func() map[int]int
	// Failure reports whether err says what a call without a connection should say; late
	// means that its context has ended.
	Failure func(err error, late bool) bool
}

const (
	faultDelay   = 15 * time.Millisecond // each way
	faultRate    = 100_000               // bytes per second
	faultTimeout = 300 * time.Millisecond
	// faultLate is how long after its deadline a call may end on a busy machine; a call
	// that knows no deadline ends with its connection, much later.
	faultLate = patience.Soon / 10
)

// Faults puts a delay, a limit, resets, a refusal and a half-open connection between a
// client and its server, one after the other. Each call must end in time, say what failed, and
// work again afterwards, by the same client. What was confirmed has arrived once.
func Faults(t *testing.T, p *Proxy, c Client) {
	t.Helper()
	f := &faults{t: t, p: p, c: c}
	f.works("before any fault")

	p.Delay(faultDelay)
	begin := time.Now()
	f.works("with a delay")
	if took := time.Since(begin); took < faultDelay {
		t.Errorf("a call took %s, less than the delay: the proxy is not used", took)
	}
	p.Delay(0)

	p.Bandwidth(faultRate)
	f.works("with little bandwidth")
	p.Bandwidth(0)

	for range 5 { // between calls, and in the middle of one
		p.Delay(faultDelay)
		early := time.AfterFunc(faultDelay, p.Reset)
		_ = f.call(faultTimeout) // fails or not
		early.Stop()
		p.Delay(0)
		p.Reset()
		_ = f.call(faultTimeout)
	}
	f.works("after resets")

	p.Cut()
	f.fails("refused")
	p.Heal()
	f.works("after a refusal")

	p.Freeze()
	f.fails("half-open")
	p.Reset() // a network that has forgotten the connection
	p.Heal()
	f.works("after a half-open connection")

	p.Freeze()
	f.fails("silent")
	p.Heal()
	f.works("after a silence")

	var seen map[int]int
	patience.Until(t, "what was confirmed has arrived", func() bool {
		seen = c.Seen()
		return !slices.ContainsFunc(f.confirmed, func(n int) bool { return seen[n] == 0 })
	})
	for _, n := range slices.Sorted(maps.Keys(seen)) {
		if seen[n] > 1 && slices.Contains(f.confirmed, n) {
			t.Errorf("call %d, which was confirmed, has arrived %d times", n, seen[n])
		}
	}
}

type faults struct {
	t         *testing.T
	p         *Proxy
	c         Client
	n         int
	confirmed []int
}

// call makes the next call, which ends within its time.
func (f *faults) call(timeout time.Duration) error {
	f.t.Helper()
	f.n++
	ctx, cancel := context.WithTimeout(f.t.Context(), timeout)
	defer cancel()
	begin := time.Now()
	err := f.c.Call(ctx, f.n)
	if took := time.Since(begin); took > timeout+faultLate {
		f.t.Errorf("call %d took %s, its time was %s", f.n, took, timeout)
	}
	if err == nil {
		f.confirmed = append(f.confirmed, f.n)
	}
	return err
}

// works waits until a call succeeds.
func (f *faults) works(when string) {
	f.t.Helper()
	var err error
	for end := time.Now().Add(patience.Soon); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f.call(patience.Soon / 4); err == nil {
			return
		}
	}
	f.t.Fatalf("%s: no call succeeds: %v", when, err)
}

// fails makes calls that cannot succeed.
func (f *faults) fails(when string) {
	f.t.Helper()
	for range 2 {
		begin := time.Now()
		switch err := f.call(faultTimeout); {
		case err == nil:
			f.t.Errorf("%s: a call succeeded", when)
		case !f.c.Failure(err, time.Since(begin) >= faultTimeout):
			f.t.Errorf("%s: %v", when, err)
		}
	}
}
