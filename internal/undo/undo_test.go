package undo

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// logged runs a stack and returns what was logged.
func logged(s *Stack, limit time.Duration) string {
	var out bytes.Buffer
	s.Run(limit, slog.New(slog.NewTextHandler(&out, nil)))
	return out.String()
}

func TestReverseOrder(t *testing.T) {
	var s Stack
	var got []string
	for _, what := range []string{"a", "b", "c"} {
		s.Push(what, func(context.Context) error { got = append(got, what); return nil })
	}
	if out := logged(&s, time.Minute); out != "" {
		t.Errorf("logged %q", out)
	}
	if want := []string{"c", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if logged(&s, time.Minute); len(got) != 3 {
		t.Errorf("a second run did it again: %q", got)
	}
}

// An error is logged with the name of its step, and keeps no
// other step from happening.
func TestErrors(t *testing.T) {
	var s Stack
	done := false
	s.Push("close the store", func(context.Context) error { done = true; return nil })
	s.Push("revoke the lease", func(context.Context) error { return errors.New("no answer") })
	out := logged(&s, time.Minute)
	if !done || !strings.Contains(out, `step="revoke the lease"`) || !strings.Contains(out, "no answer") {
		t.Errorf("done %t, logged %q", done, out)
	}
}

// A step may push more: they are next.
func TestPushWhileRunning(t *testing.T) {
	var s Stack
	var got []string
	s.Push("a", func(context.Context) error { got = append(got, "a"); return nil })
	s.Push("b", func(context.Context) error {
		s.Push("c", func(context.Context) error { got = append(got, "c"); return nil })
		got = append(got, "b")
		return nil
	})
	logged(&s, time.Minute)
	if want := []string{"b", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stack
		var first, second time.Duration
		begin := time.Now()
		s.Push("be slow", func(ctx context.Context) error {
			<-ctx.Done()
			second = time.Since(begin)
			return ctx.Err()
		})
		s.Push("wait", func(ctx context.Context) error {
			<-ctx.Done()
			first = time.Since(begin)
			return ctx.Err()
		})
		out := logged(&s, 5*time.Second)
		if first != 5*time.Second || second != 10*time.Second {
			t.Errorf("steps ended after %s and %s, want 5s each", first, second)
		}
		if strings.Count(out, "slow step") != 2 || strings.Contains(out, "waits for") {
			t.Errorf("logged %q", out)
		}
	})
}

// A step that ignores its limit is waited for, loudly.
func TestStuckStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Stack
		var order []string
		s.Push("free the memory", func(context.Context) error { order = append(order, "freed"); return nil })
		s.Push("stop the writer", func(context.Context) error {
			time.Sleep(time.Minute)
			order = append(order, "stopped")
			return nil
		})
		out := logged(&s, 5*time.Second)
		if !slices.Equal(order, []string{"stopped", "freed"}) {
			t.Errorf("order %q", order)
		}
		if !strings.Contains(out, "stopping waits for a step") || !strings.Contains(out, "stop the writer") {
			t.Errorf("logged %q", out)
		}
	})
}
