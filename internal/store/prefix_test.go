package store

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
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

// A value that is the same to the reader is there, but nobody is told. One that comes back
// is told in any case.
func TestSame(t *testing.T) {
	type document struct{ State, Counter string }
	decode := func(kv KV) (document, error) {
		state, counter, _ := strings.Cut(string(kv.Value), " ")
		return document{state, counter}, nil
	}
	same := Same(func(a, b document) bool { return a.State == b.State })
	s := NewMemory(nil)
	defer s.Close()
	p, err := WatchPrefix(t.Context(), s, "p/", decode, slog.New(slog.DiscardHandler), same, Linger(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	<-p.Changed() // the first listing
	for _, step := range []struct {
		value string
		told  bool
	}{{"ready 1", true}, {"ready 2", false}, {"failed 3", true}, {"failed 4", false}, {"", true}, {"failed 5", true}, {"lost", true}, {"failed 5", true}, {"failed 6", false}} {
		switch step.value {
		case "":
			p.apply(Event{Type: Delete, KV: KV{Key: "p/a"}})
		case "lost":
			p.apply(Event{Type: Resync})
			step.value = "failed 5" // it lingers
		default:
			p.apply(Event{Type: Put, KV: KV{Key: "p/a", Value: []byte(step.value)}})
		}
		told := false
		select {
		case <-p.Changed():
			told = true
		default:
		}
		if told != step.told {
			t.Errorf("%q: told is %t, want %t", step.value, told, step.told)
		}
		if v := p.Snapshot()["p/a"]; strings.TrimSpace(v.State+" "+v.Counter) != step.value {
			t.Errorf("the value is %+v, want %q", v, step.value)
		}
	}
	if _, err := WatchPrefix(t.Context(), s, "p/", DecodeJSON[string], slog.New(slog.DiscardHandler), same); err == nil || !strings.Contains(err.Error(), "compared by") {
		t.Errorf("a comparison of another type: %v", err)
	}
}

// newest is a store that tells of changes before its watches do.
type newest struct {
	*Memory
	rev Revision
	err error
}

func (n *newest) Newest(context.Context, string) (Revision, error) { return n.rev, n.err }

func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &newest{Memory: NewMemory(nil)}
		defer s.Close()
		rev, err := s.Put(t.Context(), "a/1", []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := WatchPrefix(t.Context(), s, "a/", func(kv KV) (string, error) { return string(kv.Value), nil }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		s.rev = rev
		if waited, err := p.CatchUp(t.Context()); waited || err != nil {
			t.Errorf("while the view is current: %v, %v", waited, err)
		}
		s.rev = rev + 2
		type answer struct {
			waited bool
			err    error
		}
		answers := make(chan answer, 2)
		for range 2 {
			go func() {
				waited, err := p.CatchUp(t.Context())
				answers <- answer{waited, err}
			}()
		}
		for _, text := range []string{"two", "three"} {
			synctest.Wait()
			if len(answers) > 0 {
				t.Errorf("an answer before %s: %+v", text, <-answers)
			}
			if _, err := s.Put(t.Context(), "a/1", []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if a := <-answers; !a.waited || a.err != nil {
				t.Errorf("%+v", a)
			}
		}
		if v, _ := p.Get("a/1"); v != "three" {
			t.Errorf("caught up with %q", v)
		}
		s.rev++
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.CatchUp(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "a/ is of revision 3, the store is at 4") {
			t.Errorf("a change that never comes: %v", err)
		}
		s.err = ErrUnavailable
		if _, err := p.CatchUp(ctx); !errors.Is(err, ErrUnavailable) {
			t.Errorf("without a store: %v", err)
		}
		s.err = nil
		p.Close()
		if _, err := p.CatchUp(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
