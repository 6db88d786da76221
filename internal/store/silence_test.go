package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// All who wait for a silent etcd stop waiting at one moment, whenever they began; who
// comes later does not wait, until it has answered again.
func TestPatienceWithSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth()
		defer h.stop()
		begin := time.Now()
		waits := func() time.Duration {
			ctx, cancel := h.whileAnswering(t.Context())
			defer cancel()
			limit, cancelLimit := context.WithTimeout(ctx, time.Minute)
			defer cancelLimit()
			from := time.Now()
			<-limit.Done()
			if took := time.Since(from); took == time.Minute || errors.Is(context.Cause(limit), ErrUnavailable) {
				return took
			}
			t.Errorf("it ended with %v", context.Cause(limit))
			return 0
		}
		if took := waits(); took != time.Minute {
			t.Errorf("etcd answers, and the patience ended after %s", took)
		}

		// A probe that failed is no silence yet.
		h.failed(errors.New("no route"), time.Now())
		time.Sleep(silenceLimit / 2)
		h.answered(nil)
		if took := waits(); took != time.Minute {
			t.Errorf("etcd has answered again, and the patience ended after %s", took)
		}

		ended := make(chan time.Duration, 2)
		go func() { waits(); ended <- time.Since(begin) }()
		begin = time.Now()
		h.failed(errors.New("no route"), time.Now())
		time.Sleep(silenceLimit / 2)
		h.failed(errors.New("no route"), time.Now())
		go func() { waits(); ended <- time.Since(begin) }()
		for range 2 {
			if got := <-ended; got != silenceLimit {
				t.Errorf("waited until %s after etcd fell silent, want %s", got, silenceLimit)
			}
		}
		if took := waits(); took != 0 {
			t.Errorf("waited for %s when etcd was silent for long", took)
		}
		h.answered(nil)
		if took := waits(); took != time.Minute {
			t.Errorf("etcd is back, and the patience ended after %s", took)
		}
	})
}
