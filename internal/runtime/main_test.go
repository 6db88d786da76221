package runtime_test

import (
	"context"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// echo answers one item: the worker's name.
func echo(name string) requestplane.Handler {
	return func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		return send(name)
	}
}

// hold answers "started" and then waits for release before it answers "done".
func hold(release <-chan struct{}) requestplane.Handler {
	return func(ctx context.Context, _ *requestplane.Request, send func(any) error) error {
		if err := send("started"); err != nil {
			return err
		}
		select {
		case <-release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return send("done")
	}
}

func serve(t *testing.T, d *runtime.DistributedRuntime, endpoint string, h requestplane.Handler) *runtime.Served {
	t.Helper()
	s, err := d.Serve(t.Context(), "backend", endpoint, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask calls an instance and returns its whole answer.
func ask(ctx context.Context, c *runtime.Client, inst cluster.Instance) (string, error) {
	stream, err := c.Call(ctx, inst, "req-1", nil, nil)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	return recv(ctx, stream)
}

// recv reads a stream to its end and joins its items with blanks.
func recv(ctx context.Context, stream requestplane.Stream) (answer string, err error) {
	for {
		var item string
		switch err := stream.Recv(ctx, &item); err {
		case nil:
			if answer != "" {
				answer += " "
			}
			answer += item
		case io.EOF:
			return answer, nil
		default:
			return answer, err
		}
	}
}

func next(t *testing.T, stream requestplane.Stream, want string) {
	t.Helper()
	var item string
	if err := stream.Recv(t.Context(), &item); err != nil || item != want {
		t.Fatalf("next item: got %q, %v, want %q", item, err, want)
	}
}

// waitFor waits until the client knows exactly the given instances.
func waitFor(t *testing.T, c *runtime.Client, want ...cluster.InstanceID) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		got := c.Instances()
		same := len(got) == len(want)
		for i := range want {
			same = same && got[i].InstanceID == want[i]
		}
		if same {
			return
		}
		select {
		case <-c.Changed():
		case <-deadline:
			t.Fatalf("instances: got %v, want %v", got, want)
		}
	}
}

func only(t *testing.T, c *runtime.Client) cluster.Instance {
	t.Helper()
	if err := c.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return c.Instances()[0]
}

// value returns the value of a key, or "" when there is none.
func value(t *testing.T, s store.Store, key string) string {
	t.Helper()
	kvs, _, err := s.List(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if kv.Key == key {
			return string(kv.Value)
		}
	}
	return ""
}

// byID is a value that names the instance id.
func byID(text string) func(cluster.InstanceID) []byte {
	return func(id cluster.InstanceID) []byte { return []byte(text + " of " + id.String()) }
}

func fixed(key string) func(cluster.InstanceID) string {
	return func(cluster.InstanceID) string { return key }
}
