package embedded_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/embedded"
)

var discard = slog.New(slog.DiscardHandler)

func startNATS(t *testing.T, opts embedded.NATSOptions) *embedded.NATS {
	t.Helper()
	n, err := embedded.StartNATS(deadline(t), testNATS(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func testNATS(t *testing.T, opts embedded.NATSOptions) embedded.NATSOptions {
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	if opts.Log == nil {
		opts.Log = testLog(t)
	}
	return opts
}

func TestNATSKeepsItsQueueAcrossRestarts(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // registered first, runs last
	dir := t.TempDir()
	first := startNATS(t, embedded.NATSOptions{Dir: dir})
	js := dialJetStream(t, first.URL())
	stream := jetstream.StreamConfig{Name: "q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy}
	if _, err := js.CreateStream(deadline(t), stream); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 7<<20)
	for _, body := range [][]byte{[]byte("small"), large} {
		if _, err := js.Publish(deadline(t), "q.a", body); err != nil {
			t.Fatalf("publish %d bytes: %v", len(body), err)
		}
	}
	js.Conn().Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	select {
	case <-first.Done():
	default:
		t.Error("Done is open after Close")
	}
	if err := first.Err(); err != nil {
		t.Errorf("Err after Close: %v", err)
	}

	second := startNATS(t, embedded.NATSOptions{Dir: dir, Addr: strings.TrimPrefix(first.URL(), "nats://")})
	if second.URL() != first.URL() {
		t.Errorf("url: got %s, want %s", second.URL(), first.URL())
	}
	wantQueued(t, second.URL(), 2)
}

// A message counts once as it comes and once for each subscriber that it goes to.
func TestNATSCountsMessages(t *testing.T) {
	n := startNATS(t, embedded.NATSOptions{})
	nc := dialJetStream(t, n.URL()).Conn()
	for range 3 {
		if _, err := nc.Subscribe("a", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	inBefore, outBefore := n.Messages()
	for range 2 {
		if err := nc.Publish("a", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil { // the server has answered after both
		t.Fatal(err)
	}
	if in, out := n.Messages(); in-inBefore != 2 || out-outBefore != 6 {
		t.Errorf("%d messages came and %d were delivered, want 2 and 6", in-inBefore, out-outBefore)
	}
}

func TestNATSStartErrors(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		opts embedded.NATSOptions
		want error
	}{
		{"port in use", embedded.NATSOptions{Addr: busy.Addr().String()}, embedded.ErrPortInUse},
		{"directory is a file", embedded.NATSOptions{Dir: file}, embedded.ErrDir},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n, err := embedded.StartNATS(deadline(t), testNATS(t, tc.opts))
			if err == nil {
				n.Close()
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error: got %v, want %v", err, tc.want)
			}
			t.Log(err)
		})
	}
}
