package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/embedded"
)

// smallDisk is a file system of its own. fill takes all that it has left, and room gives
// that back.
func smallDisk(t *testing.T, size string) (dir string, fill, room func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("no small file system can be mounted here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	fill = func() {
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, n := range []int{1 << 20, 4 << 10, 1} {
			for err = nil; err == nil; {
				_, err = f.Write(make([]byte, n))
			}
		}
	}
	room = func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	return dir, fill, room
}

// ends waits until a server has stopped by itself.
func ends(t *testing.T, s interface {
	Done() <-chan struct{}
	Err() error
}) {
	t.Helper()
	select {
	case <-s.Done():
	case <-deadline(t).Done():
		t.Fatal("the server never gave up")
	}
	if s.Err() == nil {
		t.Error("the server does not say why it stopped")
	}
}

// An etcd that cannot write stops and says so, and has its data when there is room again.
func TestEtcdOnAFullDisk(t *testing.T) {
	dir, fill, room := smallDisk(t, "192m")
	opts := testEtcd(t, embedded.EtcdOptions{Dir: filepath.Join(dir, "etcd")})
	secret := credentials.New()
	opts.Credentials = serverCredentials(t, secret)
	opts.Log = slog.New(slog.DiscardHandler) // it has much to say
	e, err := embedded.StartEtcd(deadline(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.ClientAddr = e.Endpoint()
	c := etcdClient(t, e.Endpoint(), clientTLS(t, secret))
	if _, err := c.Put(deadline(t), "before", "kept"); err != nil {
		t.Fatal(err)
	}
	fill()
	for i := 0; i < 200; i++ { // until its file has to grow
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Put(ctx, "k", strings.Repeat("x", 1<<20))
		if cancel(); err != nil {
			break
		}
		fill()
	}
	ends(t, e)
	if err := e.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	room()
	again, err := embedded.StartEtcd(deadline(t), opts)
	if err != nil {
		t.Fatalf("with room: %v", err)
	}
	defer again.Close()
	// A client that was there before is not left with the one that failed.
	got, err := c.Get(deadline(t), "before")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "kept" {
		t.Errorf("from before: %v %v", got, err)
	}
	if _, err := c.Put(deadline(t), "after", "kept"); err != nil {
		t.Error(err)
	}
}

// A disk that is full when etcd starts on it is called by its name.
func TestEtcdStartsOnAFullDisk(t *testing.T) {
	dir, fill, _ := smallDisk(t, "8m")
	opts := testEtcd(t, embedded.EtcdOptions{Dir: filepath.Join(dir, "etcd")})
	opts.Log = slog.New(slog.DiscardHandler)
	if err := os.Mkdir(opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fill()
	e, err := embedded.StartEtcd(deadline(t), opts)
	if err == nil {
		e.Close()
	}
	if !errors.Is(err, embedded.ErrNoSpace) {
		t.Errorf("got %v, want %v", err, embedded.ErrNoSpace)
	}
}

// A NATS server that cannot write passes events on, and stops when there is room, so that
// the next one has the queue.
func TestNATSOnAFullDisk(t *testing.T) {
	dir, fill, room := smallDisk(t, "32m")
	opts := testNATS(t, embedded.NATSOptions{Dir: filepath.Join(dir, "nats")})
	opts.Log = slog.New(slog.DiscardHandler)
	first, err := embedded.StartNATS(deadline(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Addr = strings.TrimPrefix(first.URL(), "nats://")
	js := dialJetStream(t, first.URL())
	if _, err := js.CreateStream(deadline(t), jetstream.StreamConfig{Name: "q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	publish := func(js jetstream.JetStream, body string) error {
		_, err := js.Publish(deadline(t), "q.a", []byte(body), jetstream.WithRetryAttempts(0))
		return err
	}
	if err := publish(js, "before"); err != nil {
		t.Fatal(err)
	}
	fill()
	for i := 0; ; i++ {
		// An answer may be missing for a message that cannot be stored.
		if _, err := js.PublishAsync("q.a", []byte(strings.Repeat("x", 256<<10))); err != nil || i > 100 {
			t.Fatalf("nothing failed: %v", err)
		}
		select {
		case <-js.PublishAsyncComplete():
			continue
		case <-time.After(500 * time.Millisecond):
		}
		break
	}
	nc, err := nats.Connect(first.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("event")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("event", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(10 * time.Second); err != nil {
		t.Errorf("an event on a full disk: %v", err)
	}
	select {
	case <-first.Done():
		t.Errorf("stopped with no room for another start: %v", first.Err())
	default:
	}
	room()
	ends(t, first)
	if err := first.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	second := startNATS(t, opts)
	js = dialJetStream(t, second.URL())
	if err := publish(js, "after"); err != nil {
		t.Fatalf("publish with room: %v", err)
	}
	c, err := js.CreateConsumer(deadline(t), "q", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for !got["after"] {
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatalf("fetch: %v, have %d messages", err, len(got))
		}
		got[string(m.Data())] = true
		if err := m.DoubleAck(deadline(t)); err != nil {
			t.Errorf("acknowledge: %v", err)
		}
	}
	if !got["before"] {
		t.Error("the message from before is gone")
	}
}
