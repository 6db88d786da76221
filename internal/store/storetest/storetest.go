// Package storetest is a test suite for implementations of [store.Store], with helpers
// that tests of stores share.
//
// Start with [Run]. The package is for tests only.
package storetest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/store"
)

// Patience limits every single wait of the suite.
const Patience = time.Minute

// TTL is the lease TTL that the suite asks for. Stores may round it up.
const TTL = time.Second

// Run tests the stores that open returns. It calls open once per test; open returns an
// empty store and cleans up through t.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	tests := []struct {
		name string
		run  func(*testing.T, store.Store)
	}{
		{"GetReturnsWhatWasPut", testPutGet},
		{"CreateOnlyIfAbsent", testCreate},
		{"OneOfManyCreatorsWins", testCreateRace},
		{"CompareAndSwap", testCompareAndSwap},
		{"DeleteWinsAgainstSwap", testDeleteWins},
		{"ListIsSortedAndEndsAtThePrefix", testList},
		{"Delete", testDelete},
		{"LeaseOwnsItsKeys", testLease},
		{"LeaseExpires", testLeaseExpires},
		{"PutMovesAKeyToAnotherLease", testLeaseMove},
		{"KeeperKeepsTheLease", testKeeper},
		{"KeeperNoticesALostLease", testKeeperLost},
		{"KeeperRevokes", testKeeperRevoke},
		{"WatchBeginsWithTheState", testWatchSnapshot},
		{"WatchDeliversEveryChangeInOrder", testWatchOrder},
		{"WatchSeesLeasesEnd", testWatchLease},
		{"WatchersDoNotStealFromEachOther", testWatchTwo},
		{"SlowReaderGetsTheFinalState", testWatchSlow},
		{"WatchEndsWithItsContextOnly", testWatchEnd},
		{"PrefixFollows", testPrefix},
		{"PrefixKeepsTheLastGoodValue", testPrefixBadValue},
		{"JSON", testJSON},
		{"OneLeaderAtATime", testElect},
		{"LeaderIsDeposedWithItsLease", testElectDeposed},
		{"ReadersShareWritersDoNot", testRWLock},
		{"LocksEndWithTheirLease", testRWLockLease},
		{"WritersComeInOrderAndBeforeReaders", testRWLockOrder},
		{"LocksExclude", testRWLockModel},
		{"CancelledCallsFail", testCancelled},
		{"CloseEndsEverything", testClose},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // the tests mostly wait for leases
			tc.run(t, open(t))
		})
	}
}

// Discard is a logger that discards everything.
var Discard = slog.New(slog.DiscardHandler)

// Next returns the next event of a watch, or fails the test.
func Next(t *testing.T, w *store.Watcher) store.Event {
	t.Helper()
	select {
	case ev, ok := <-w.Events():
		if !ok {
			t.Fatal("watch ended")
		}
		return ev
	case <-time.After(Patience):
		t.Fatal("no event")
	}
	return store.Event{}
}

// Follow applies events to state, by key, until condition holds.
func Follow(t *testing.T, w *store.Watcher, state map[string]string, what string, condition func() bool) {
	t.Helper()
	for end := time.After(Patience); !condition(); {
		select {
		case ev, ok := <-w.Events():
			if !ok {
				t.Fatalf("watch ended before: %s", what)
			}
			switch ev.Type {
			case store.Put:
				state[ev.KV.Key] = string(ev.KV.Value)
			case store.Delete:
				delete(state, ev.KV.Key)
			case store.Resync:
				clear(state)
				for _, kv := range ev.All {
					state[kv.Key] = string(kv.Value)
				}
			}
		case <-end:
			t.Fatalf("still not so after %s: %s; the state is %v", Patience, what, state)
		}
	}
}

// Eventually waits until condition holds, or fails the test with what. It counts polls as
// well as time, so that a stalled machine does not count as waiting.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	const pause = 5 * time.Millisecond
	end := time.Now().Add(Patience)
	for polls := 0; !condition(); polls++ {
		if time.Now().After(end) && polls > int(Patience/pause)/4 {
			t.Fatalf("still not so after %s: %s", Patience, what)
		}
		time.Sleep(pause)
	}
}

// Closed waits until ch is closed, or fails the test with what.
func Closed(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(Patience):
		t.Fatalf("still not so after %s: %s", Patience, what)
	}
}

func put(t *testing.T, s store.Store, key, value string, opts ...store.PutOption) store.Revision {
	t.Helper()
	rev, err := s.Put(t.Context(), key, []byte(value), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func watch(t *testing.T, s store.Store, prefix string) *store.Watcher {
	t.Helper()
	w, err := s.Watch(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func grant(t *testing.T, s store.Store) store.Lease {
	t.Helper()
	// Long: these leases are revoked, not waited for.
	lease, err := s.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// AwaitAnswer waits until the store answers, or ctx ends.
func AwaitAnswer(ctx context.Context, s store.Store) error {
	for {
		_, err := s.Ping(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func exists(t *testing.T, s store.Store, key string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	kvs, _, err := s.List(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	return len(kvs) > 0
}
