package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// fakeLeases grants one lease and answers keep-alives as told, remembering when
// they came.
type fakeLeases struct {
	ttl time.Duration

	mu     sync.Mutex
	answer error
	hang   bool
	calls  []time.Time
}

func (f *fakeLeases) GrantLease(context.Context, time.Duration) (Lease, error) {
	return Lease{ID: 7, TTL: f.ttl}, nil
}

func (f *fakeLeases) RevokeLease(context.Context, cluster.InstanceID) error { return nil }

func (f *fakeLeases) keepAlive(ctx context.Context, _ cluster.InstanceID) (time.Duration, error) {
	f.mu.Lock()
	f.calls = append(f.calls, time.Now())
	answer, hang := f.answer, f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	return f.ttl, answer
}

func (f *fakeLeases) set(answer error, hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer, f.hang = answer, hang
}

// since returns the keep-alives after from, as offsets.
func (f *fakeLeases) since(from time.Time) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var offsets []time.Duration
	for _, at := range f.calls {
		if at.After(from) {
			offsets = append(offsets, at.Sub(from))
		}
	}
	return offsets
}

func runKeeper(t *testing.T, f *fakeLeases, test func(k *LeaseKeeper)) {
	synctest.Test(t, func(t *testing.T) {
		life := newLifetime()
		k, err := keepLease(t.Context(), life, f, f.ttl, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		test(k)
		life.close()
	})
}

func TestKeeperRenewsAtHalfTheRemainingTime(t *testing.T) {
	f := &fakeLeases{ttl: 10 * time.Second}
	runKeeper(t, f, func(k *LeaseKeeper) {
		start := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		last := time.Duration(0)
		calls := f.since(start)
		for _, at := range calls {
			if gap := at - last; gap < 4500*time.Millisecond || gap > 5*time.Second {
				t.Errorf("keep-alive %s after the previous one, want 4.5s to 5s", gap)
			}
			last = at
		}
		if len(calls) < 12 {
			t.Errorf("got %d keep-alives in a minute, want at least 12", len(calls))
		}
	})
}

func TestKeeperRetriesFasterAndNeverGivesUp(t *testing.T) {
	unreachable := fmt.Errorf("%w: connection refused", ErrUnavailable)
	for name, fail := range map[string]func(*fakeLeases){
		"refused": func(f *fakeLeases) { f.set(unreachable, false) },
		"silent":  func(f *fakeLeases) { f.set(nil, true) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeLeases{ttl: 10 * time.Second}
			runKeeper(t, f, func(k *LeaseKeeper) {
				start := time.Now()
				fail(f)
				time.Sleep(9900 * time.Millisecond)
				if k.Uncertain() {
					t.Error("uncertain before the TTL is over")
				}
				if n := len(f.since(start)); n < 4 {
					t.Errorf("got %d attempts within the TTL, want several", n)
				}
				time.Sleep(200 * time.Millisecond)
				if !k.Uncertain() {
					t.Error("certain after the TTL is over")
				}
				late := time.Now()
				time.Sleep(time.Minute)
				attempts := f.since(late)
				if len(attempts) < 30 || len(attempts) > 130 {
					t.Errorf("got %d attempts in a minute of outage, want about one a second", len(attempts))
				}
				f.set(nil, false)
				back := time.Now()
				time.Sleep(2 * time.Second)
				if k.Uncertain() || k.Err() != nil || k.LastRenewed().Before(back) {
					t.Errorf("two seconds after the outage: uncertain %v, error %v, renewed %s before the end", k.Uncertain(), k.Err(), back.Sub(k.LastRenewed()))
				}
				select {
				case <-k.Lost():
					t.Error("the lease was given up")
				default:
				}
			})
		})
	}
}

func TestKeeperBelievesOnlyTheServer(t *testing.T) {
	f := &fakeLeases{ttl: 10 * time.Second}
	runKeeper(t, f, func(k *LeaseKeeper) {
		f.set(errors.New("something else"), false)
		time.Sleep(time.Minute)
		select {
		case <-k.Lost():
			t.Fatal("lost without the server having said so")
		default:
		}
		f.set(fmt.Errorf("keep alive: %w", ErrLeaseNotFound), false)
		k.Check()
		synctest.Wait()
		select {
		case <-k.Lost():
		default:
			t.Fatal("not lost although the server said so")
		}
		if k.Uncertain() {
			t.Error("a lost lease is not uncertain")
		}
		told := false
		k.OnLost(func() { told = true })
		if !told {
			t.Error("whoever comes after the loss is not told")
		}
		n := len(f.since(time.Time{}))
		time.Sleep(time.Minute)
		if got := len(f.since(time.Time{})); got != n {
			t.Errorf("%d keep-alives after the loss", got-n)
		}
	})
}
