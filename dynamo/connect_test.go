package dynamo_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/dynamo"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/credentials"
)

// A program beside a dynamod: both find each other over etcd, NATS and TCP, and the frontend
// of the dynamod offers the model of the program beside its own.
func TestConnect(t *testing.T) {
	c := clustertest.Start(t, clustertest.Options{Decode: 1})
	environ := []string{"HOME=" + t.TempDir(), "ETCD_ENDPOINTS=" + c.EtcdAddr, "NATS_SERVER=" + c.NATSURL(), "DYNAMOD_SECRET_FILE=" + c.SecretFile}
	connect := func(name string) *dynamo.Runtime {
		t.Helper()
		r, err := dynamo.Connect(t.Context(), dynamo.WithEnviron(environ), dynamo.WithName(name))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := connect("a"), connect("b")
	if a.Namespace() != "dynamo" || a.ID() == b.ID() {
		t.Errorf("namespace %s, ids %d and %d", a.Namespace(), a.ID(), b.ID())
	}
	serve(t, a, "dynamo.backend.hello", names("a"))
	client := follow(t, b, "dynamo.backend.hello", 1)
	if got, err := dynamo.Ask[string](t.Context(), client, nil); got != "a" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := a.ServeModel(t.Context(), dynamo.Model{Name: "echo"}, echo); err != nil {
		t.Fatal(err)
	}
	if got := chat(c.URL, "echo", "Is there anybody out there?"); got != "Is there anybody out there?" {
		t.Errorf("the program's model: %s", got)
	}
	if _, err := c.Complete(t.Context(), clustertest.Body{"prompt": "One two", "max_tokens": 4}); err != nil {
		t.Errorf("the dynamod's model: %v", err)
	}

	got := make(chan string, 1)
	s, err := b.Subscribe(t.Context(), "backend", "state", func(e dynamo.Event) {
		var text string
		_ = e.Decode(&text)
		select {
		case got <- text:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(time.Minute)
	for arrived := false; !arrived; { // the subscription takes effect in the background
		if err := a.Publish(t.Context(), "backend", "state", "ready"); err != nil {
			t.Fatal(err)
		}
		select {
		case text := <-got:
			if arrived = true; text != "ready" {
				t.Errorf("an event %q", text)
			}
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("no event arrived")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	// What leaves is gone at once, and not only when its lease ends.
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for len(client.Instances()) != 0 {
		select {
		case <-client.Changed():
		case <-deadline:
			t.Fatalf("still there: %v", client.Instances())
		}
	}
	client.Close()
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Programs without any server: a directory holds what they know of each other, and each is
// called on the request plane that it has.
func TestConnectByFiles(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if _, err := credentials.Create(secret, credentials.New()); err != nil {
		t.Fatal(err)
	}
	connect := func(name, plane string) *dynamo.Runtime {
		t.Helper()
		r, err := dynamo.Connect(t.Context(), dynamo.WithName(name), dynamo.WithEnviron([]string{
			"HOME=" + t.TempDir(), "DYN_DISCOVERY_BACKEND=file", "DYN_FILE_KV=" + dir, "DYN_REQUEST_PLANE=" + plane, "DYNAMOD_SECRET_FILE=" + secret,
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	a, b, c := connect("a", "http"), connect("b", "tcp"), connect("c", "http")
	serve(t, a, "dynamo.backend.hello", names("a"))
	serve(t, b, "dynamo.backend.hello", names("b"))
	client := follow(t, c, "dynamo.backend.hello", 2)
	heard := map[string]bool{}
	for range 2 {
		got, err := dynamo.Ask[string](t.Context(), client, nil)
		if err != nil {
			t.Fatal(err)
		}
		heard[got] = true
	}
	if len(heard) != 2 {
		t.Errorf("heard %v", heard)
	}
	for _, inst := range client.Instances() {
		if strings.HasPrefix(inst.Address, "http://127.0.0.1:") != (inst.Name == "a") {
			t.Errorf("instance %+v", inst)
		}
	}
}

func TestConnectFails(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		environ []string
		want    error
	}{
		"no cluster":         {nil, dynamo.ErrUnreachable},
		"no secret":          {[]string{"ETCD_ENDPOINTS=127.0.0.1:1", "DYNAMOD_SECRET_FILE=" + secret}, dynamo.ErrNoSecret},
		"an unusable secret": {[]string{"ETCD_ENDPOINTS=127.0.0.1:1", "DYNAMOD_SECRET_FILE=" + t.TempDir()}, dynamo.ErrNoSecret},
		"a wrong setting":    {[]string{"DYNAMOD_ETCD_LEASE_TTL=soon"}, nil},
	} {
		r, err := dynamo.Connect(t.Context(), dynamo.WithEnviron(append(tc.environ, "HOME="+t.TempDir())))
		if r != nil || err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// With a secret, it asks the store.
	if _, err := credentials.Create(secret, credentials.New()); err != nil {
		t.Fatal(err)
	}
	if _, err := dynamo.Connect(ctx, dynamo.WithEnviron([]string{"ETCD_ENDPOINTS=127.0.0.1:1", "DYNAMOD_SECRET_FILE=" + secret, "HOME=" + t.TempDir()})); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended: %v", err)
	}
}

// With the backend mem, a program is a cluster of its own.
func TestConnectAlone(t *testing.T) {
	connect := func() *dynamo.Runtime {
		t.Helper()
		r, err := dynamo.Connect(t.Context(), dynamo.WithEnviron([]string{"HOME=" + t.TempDir(), "DYN_DISCOVERY_BACKEND=mem", "DYNAMOD_NAMESPACE=mine"}))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := connect(), connect()
	if a.Namespace() != "mine" {
		t.Errorf("namespace %s", a.Namespace())
	}
	serve(t, a, "mine.backend.hello", names("a"))
	serve(t, b, "mine.backend.hello", names("b"))
	for r, want := range map[*dynamo.Runtime]string{a: "a", b: "b"} {
		client := follow(t, r, "mine.backend.hello", 1)
		for range 4 {
			if got, err := dynamo.Ask[string](t.Context(), client, nil); got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
