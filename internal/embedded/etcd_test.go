package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/patience"
)

// startEtcd starts a server that the test closes.
func startEtcd(t *testing.T, opts embedded.EtcdOptions) *embedded.Etcd {
	t.Helper()
	e, err := embedded.StartEtcd(deadline(t), testEtcd(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func testEtcd(t *testing.T, opts embedded.EtcdOptions) embedded.EtcdOptions {
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.ClientAddr == "" {
		opts.ClientAddr = "127.0.0.1:0"
	}
	if opts.Log == nil {
		opts.Log = testLog(t)
	}
	opts.UnsafeNoFsync = true
	return opts
}

// testLog fails the test on anything above debug: healthy servers are silent. That
// something took too long they say of the machine.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(failWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type failWriter struct{ t *testing.T }

func (w failWriter) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte("took too long")) {
		w.t.Errorf("the server was not quiet: %s", p)
	}
	return len(p), nil
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func dialEtcd(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func put(t *testing.T, endpoint, key, value string) {
	t.Helper()
	if _, err := dialEtcd(t, endpoint).Put(deadline(t), key, value); err != nil {
		t.Fatal(err)
	}
}

func wantValue(t *testing.T, endpoint, key, want string) {
	t.Helper()
	resp, err := dialEtcd(t, endpoint).Get(deadline(t), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != want {
		t.Errorf("value of %s: got %v, want %q", key, resp.Kvs, want)
	}
}

func TestEtcdKeepsItsDataAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	first := startEtcd(t, embedded.EtcdOptions{Dir: dir})
	t.Logf("first start took %s", time.Since(start))
	put(t, first.Endpoint(), "k", "v")
	start = time.Now()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("close took %s", time.Since(start))
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

	t.Run("on another port", func(t *testing.T) {
		second := startEtcd(t, embedded.EtcdOptions{Dir: dir})
		wantValue(t, second.Endpoint(), "k", "v")
		put(t, second.Endpoint(), "k", "v2")
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("on the same port", func(t *testing.T) {
		third := startEtcd(t, embedded.EtcdOptions{Dir: dir, ClientAddr: first.Endpoint()})
		if third.Endpoint() != first.Endpoint() {
			t.Errorf("endpoint: got %s, want %s", third.Endpoint(), first.Endpoint())
		}
		wantValue(t, third.Endpoint(), "k", "v2")
	})
}

// The files of a new server take little room.
func TestEtcdIsSmall(t *testing.T) {
	dir := t.TempDir()
	startEtcd(t, embedded.EtcdOptions{Dir: dir})
	total := int64(0)
	sum := func() {
		total = 0
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			total += info.Size()
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a file may get its name just now
			t.Fatal(err)
		}
	}
	patience.Until(t, "files are allocated", func() bool { sum(); return total > 8<<20 })
	if total > 24<<20 {
		t.Errorf("%d MB", total>>20)
	}
}

func TestEtcdOnEveryInterface(t *testing.T) {
	e := startEtcd(t, embedded.EtcdOptions{ClientAddr: ":0", PeerAddr: "0.0.0.0:0"})
	if host, _, err := net.SplitHostPort(e.Endpoint()); err != nil || host != "127.0.0.1" {
		t.Errorf("endpoint: got %s, want one to dial", e.Endpoint())
	}
	put(t, e.Endpoint(), "k", "v")
}

func TestEtcdCloseDoesNotWaitForWatches(t *testing.T) {
	e := startEtcd(t, embedded.EtcdOptions{})
	c := dialEtcd(t, e.Endpoint())
	ch := c.Watch(deadline(t), "k", clientv3.WithCreatedNotify())
	<-ch
	start := time.Now()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second { // for as long etcd waits for a watch
		t.Errorf("close with an open watch took %s", took)
	}
}

func TestEtcdStartErrors(t *testing.T) {
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
		opts embedded.EtcdOptions
		want error
	}{
		{"client port in use", embedded.EtcdOptions{ClientAddr: busy.Addr().String()}, embedded.ErrPortInUse},
		{"peer port in use", embedded.EtcdOptions{PeerAddr: busy.Addr().String()}, embedded.ErrPortInUse},
		{"directory is a file", embedded.EtcdOptions{Dir: file}, embedded.ErrDir},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e, err := embedded.StartEtcd(deadline(t), testEtcd(t, tc.opts))
			if err == nil {
				e.Close()
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("error: got %v, want %v", err, tc.want)
			}
			t.Log(err)
		})
	}
}
