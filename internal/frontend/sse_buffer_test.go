package frontend

import (
	"bufio"
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// gated holds up the first write until it is released.
type gated struct {
	*httptest.ResponseRecorder
	begun, release chan struct{}
	once           sync.Once
}

func (g *gated) Write(b []byte) (int, error) {
	g.once.Do(func() {
		close(g.begun)
		<-g.release
	})
	return g.ResponseRecorder.Write(b)
}

// What is put while a write is under way waits, up to a bound, and then goes out together.
func TestStreamBuffersWithinBounds(t *testing.T) {
	w := &gated{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), release: make(chan struct{})}
	s := newSSE(w, time.Second)
	a := &completionAnswer{echo: make([]string, 1), chunks: newChunks("id", "o", "m", 0, false)}
	d := delta{text: strings.Repeat("x", 1000)}
	put, wrote := 0, make(chan error)
	add := func() {
		t.Helper()
		if err := s.put(t.Context(), a, d); err != nil {
			t.Fatal(err)
		}
		put++
	}
	add()
	go func() { wrote <- s.flush() }()
	<-w.begun
	for len(s.pending) <= maxPending {
		add()
		if err := s.flush(); err != nil { // leaves it to the other one
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("left")
	full := make(chan error)
	go func() { full <- s.put(ctx, a, d) }()
	cancel(why)
	if err := <-full; !errors.Is(err, why) {
		t.Errorf("put into a full stream: %v", err)
	}
	go func() { full <- s.put(t.Context(), a, d) }()
	close(w.release)
	if err := errors.Join(<-full, <-wrote, s.end(nil, nil)); err != nil {
		t.Error(err)
	}
	if got := strings.Count(w.Body.String(), "data: {"); got != put+1 {
		t.Errorf("%d events, put %d", got, put+1)
	}
}

// What is put without a flush goes out before it exceeds the bound.
func TestStreamHoldsBackWithinBounds(t *testing.T) {
	w := httptest.NewRecorder()
	s := newSSE(w, time.Second)
	a := &completionAnswer{echo: make([]string, 1), chunks: newChunks("id", "o", "m", 0, false)}
	for range 200 {
		if err := s.put(t.Context(), a, delta{text: strings.Repeat("x", 1000)}); err != nil {
			t.Fatal(err)
		}
		if len(s.pending) > maxPending+2000 {
			t.Fatalf("%d bytes are held back", len(s.pending))
		}
	}
	if w.Body.Len() == 0 {
		t.Error("nothing went out")
	}
}

// deadlines counts how often the deadline of writes is set.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// The deadline of writes is set anew only when half of the timeout has passed, so that each write
// has at least as much and a half once it is given up.
func TestStreamDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		s := newSSE(w, 10*time.Second)
		begin := time.Now()
		for range 16 {
			if _, err := s.keepAlive(0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		var at []time.Duration
		for _, d := range w.set {
			at = append(at, d.Sub(begin))
		}
		if want := []time.Duration{20 * time.Second, 26 * time.Second, 32 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("deadlines %v, want %v", at, want)
		}
	})
}

// A silent stream that has begun is never near its deadline: over HTTP/2 it would end there,
// although nothing is written.
func TestSilentStreamKeepsItsDeadlineAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		s := newSSE(w, time.Second)
		wait, err := s.keepAlive(15 * time.Second)
		if err != nil || len(w.set) != 0 {
			t.Fatalf("before it has begun: deadlines %v, %v", w.set, err)
		}
		a := &completionAnswer{echo: make([]string, 1), chunks: newChunks("id", "o", "m", 0, false)}
		if err := errors.Join(s.put(t.Context(), a, delta{text: "x"}), s.flush()); err != nil {
			t.Fatal(err)
		}
		for range 30 {
			time.Sleep(wait)
			if left := time.Until(w.set[len(w.set)-1]); left < s.timeout/2 {
				t.Fatalf("%s are left to write", left)
			}
			if wait, err = s.keepAlive(15 * time.Second); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A stream is silent when nothing was written for the whole time, whoever asks when.
func TestStreamSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := newSSE(w, time.Minute)
		a := &completionAnswer{echo: make([]string, 1), chunks: newChunks("id", "o", "m", 0, false)}
		time.Sleep(4 * time.Second)
		if err := errors.Join(s.put(t.Context(), a, delta{text: "x"}), s.flush()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if wait, err := s.keepAlive(5 * time.Second); wait != 2*time.Second || err != nil || strings.Contains(w.Body.String(), ": keep") {
			t.Errorf("wait %s, %v, written %q", wait, err, w.Body)
		}
		time.Sleep(2 * time.Second)
		if wait, err := s.keepAlive(5 * time.Second); wait != 5*time.Second || err != nil || !strings.HasSuffix(w.Body.String(), ": keep-alive\n\n") {
			t.Errorf("wait %s, %v, written %q", wait, err, w.Body)
		}
	})
}

// A lone token goes out at once: the worker sends the next when the client has read it.
func TestLoneToken(t *testing.T) {
	w := newWorld(t)
	read := make(chan struct{}, 1)
	read <- struct{}{}
	w.fake("worker-1", say("abc", func(ctx context.Context, _ int) error {
		select {
		case <-read:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}))
	f := w.frontend().waitModel(1)
	resp := f.post("/v1/completions", textBody(body{"stream": true}))
	defer resp.Body.Close()
	events := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: {") {
			events++
			read <- struct{}{}
		}
	}
	if events != 4 { // with that of the finish reason
		t.Errorf("%d events", events)
	}
}

// Outputs that came together are emitted without a flush between them. There is one before
// the generation turns to another worker.
func TestFlushBeforeWaiting(t *testing.T) {
	w := newWorld(t)
	gone := failAt(3, &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "lost by test"})
	fk := w.fake("worker-1", func(ctx context.Context, req protocol.PreprocessedRequest, send func(protocol.EngineOutput) error) error {
		if req.Generated == 0 {
			return say("abcd", gone)(ctx, req, send)
		}
		return say("abcd")(ctx, req, send)
	})
	f := w.frontend().waitModel(1)
	req := protocol.PreprocessedRequest{TokenIDs: tokens("x"), Model: testModel, ModelSum: testDigest, Stop: protocol.StopConditions{MaxTokens: 9}}
	g := f.newGeneration(f.registry.find(testModel), req, f.metrics.Begin(testModel, "completions", true))
	g.id = "request"
	did := ""
	g.flush = func() error {
		did += "|"
		return nil
	}
	err := g.run(t.Context(), func(o protocol.EngineOutput) error {
		patience.Until(t, "the worker has sent all", func() bool { return fk.served.InFlight() == 0 })
		did += testProcessor().Decode(o.TokenIDs)
		return nil
	})
	if err != nil || did != "|abc|d" {
		t.Errorf("%q, %v", did, err)
	}
}

// The stream of a client that does not read ends after the write timeout. If the client reads on
// before the write fails, it gets what was written before and the error.
func TestSlowReaderIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		w := &gated{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), release: make(chan struct{})}
		s := newSSE(w, timeout)
		a := &completionAnswer{echo: make([]string, 1), chunks: newChunks("id", "o", "m", 0, false)}
		if err := s.put(t.Context(), a, delta{text: "x"}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		wrote := make(chan error, 1)
		go func() { wrote <- s.flush() }()
		gone := s.attend(httptest.NewRequest("POST", "/", nil), nil, nil, 4*time.Second)
		if e := asAPIError(gone); e.Code == nil || *e.Code != "slow_reader" || e.status != 408 || e.metric != "cancelled" {
			t.Errorf("%v", gone)
		}
		if d := time.Since(begin); d != timeout {
			t.Errorf("given up after %s", d)
		}
		go func() {
			time.Sleep(timeout / 2)
			close(w.release)
		}()
		if err := errors.Join(s.end(nil, gone), <-wrote); err != nil {
			t.Error(err)
		}
		if got := w.Body.String(); !strings.Contains(got, `"text":"x"`) || !strings.Contains(got, `"code":"slow_reader"`) || !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("the client got %s", got)
		}
	})
}
