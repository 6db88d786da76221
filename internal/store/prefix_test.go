package store

import (
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Values that are not there when a prefix is listed again stay for a while, unless they were
// deleted or come back.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const d = 10 * time.Second
		p := &Prefix[string]{
			linger: d, decode: func(kv KV) (string, error) { return string(kv.Value), nil }, log: slog.New(slog.DiscardHandler),
			changed: make(chan struct{}, 1), values: map[string]string{}, lingers: map[string]time.Time{},
		}
		list := func(keys ...string) {
			ev := Event{Type: Resync}
			for _, k := range keys {
				ev.All = append(ev.All, KV{Key: k, Value: []byte(k)})
			}
			p.apply(ev)
		}
		check := func(when string, want ...string) {
			t.Helper()
			if got := slices.Sorted(maps.Keys(p.Snapshot())); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		list("a", "b", "c", "d")
		list("d")
		check("after the loss", "a", "b", "c", "d")
		if !p.Lingers("a") || p.Lingers("d") {
			t.Error("what lingers is not what is gone")
		}
		p.apply(Event{Type: Put, KV: KV{Key: "a", Value: []byte("a")}})
		p.apply(Event{Type: Delete, KV: KV{Key: "b"}})
		check("one came back, one was deleted", "a", "c", "d")
		time.Sleep(d / 2)
		list("d") // c goes on lingering, a begins
		<-p.Changed()
		time.Sleep(d/2 + time.Millisecond)
		synctest.Wait()
		check("when the time of the first is over", "a", "d")
		select {
		case <-p.Changed():
		default:
			t.Error("nobody is told that its time is over")
		}
		time.Sleep(d / 2)
		synctest.Wait()
		check("when that of all is", "d")
	})
}
