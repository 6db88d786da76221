package runtime_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

func balance(t *testing.T, c *runtime.Client, s runtime.Strategy) *runtime.Balancer {
	t.Helper()
	b, err := c.Balance(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// through calls an instance that a balancer chooses and returns its whole answer.
func through(ctx context.Context, b *runtime.Balancer) (string, error) {
	stream, err := b.Call(ctx, "req-1", nil, nil)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	return recv(ctx, stream)
}

func TestBalancerTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		a := c.Runtime(t, "worker-1")
		serve(t, a, "generate", echo("a"))
		serve(t, c.Runtime(t, "worker-2"), "generate", echo("b"))
		client := runtimetest.Client(t, a, "backend", "generate")
		if err := client.Wait(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		for _, s := range []runtime.Strategy{runtime.RoundRobin, runtime.LeastLoaded} {
			b := balance(t, client, s)
			var got []string
			for range 4 {
				answer, err := through(t.Context(), b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, answer)
			}
			if s := strings.Join(got, ""); s != "abab" && s != "baba" {
				t.Errorf("%s: %s", s, got)
			}
		}
		if _, err := client.Balance("direct"); err == nil {
			t.Error("an unknown strategy was accepted")
		}
	})
}

// A call counts until its answer has ended, or the stream is closed.
func TestBalancerCountsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		a, z := c.Runtime(t, "worker-1"), c.Runtime(t, "worker-2")
		release := make(chan struct{})
		serve(t, a, "generate", hold(release))
		serve(t, z, "generate", hold(release))
		client := runtimetest.Client(t, a, "backend", "generate")
		waitFor(t, client, a.ID(), z.ID())
		b := balance(t, client, runtime.LeastLoaded)
		counts := func(want ...int) {
			t.Helper()
			if n, m := b.InFlight(a.ID()), b.InFlight(z.ID()); n+m != want[0]+want[1] || max(n, m) != max(want[0], want[1]) {
				t.Errorf("in flight: %d and %d, want %v", n, m, want)
			}
		}
		var streams []requestplane.Stream
		for range 4 {
			s, err := b.Call(t.Context(), "req-1", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s)
		}
		counts(2, 2)
		// What is sent to one instance counts, too.
		direct, err := b.Direct(t.Context(), a.ID(), "req-1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.InFlight(a.ID()); n != 3 {
			t.Errorf("in flight after a direct call: %d", n)
		}
		direct.Close()
		streams[0].Close()
		streams[0].Close()
		streams[2].Close() // the other of the same instance: turns alternate
		counts(0, 2)
		next(t, streams[1], "started")
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := streams[1].Recv(short, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait that ends: %v", err)
		}
		counts(0, 2) // the call goes on
		close(release)
		if answer, err := recv(t.Context(), streams[1]); answer != "done" || err != nil {
			t.Errorf("after a wait that ended: %q %v", answer, err)
		}
		counts(0, 1)
		streams[1].Close()
		streams[3].Close()
		counts(0, 0)
	})
}

// What provably reached no handler goes to another instance, and the caller sees nothing.
func TestBalancerGoesElsewhere(t *testing.T) {
	for name, refuse := range map[string]func(t *testing.T, server requestplane.Server, s *runtime.Served){
		"the server is gone": func(t *testing.T, server requestplane.Server, _ *runtime.Served) {
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
		},
		"the endpoint drains": func(t *testing.T, _ requestplane.Server, s *runtime.Served) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Close(ctx); err == nil {
				t.Fatal("nothing runs there")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := runtimetest.New(t)
				release := make(chan struct{})
				var server requestplane.Server
				bad := c.Runtime(t, "worker-1", func(cfg *runtime.Config) { server = cfg.Server })
				good := c.Runtime(t, "worker-2")
				served := serve(t, bad, "generate", hold(release))
				serve(t, good, "generate", echo("good"))
				client := runtimetest.Client(t, good, "backend", "generate")
				waitFor(t, client, bad.ID(), good.ID())
				busy, err := client.Call(t.Context(), served.Instance(), "busy", nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer busy.Close()
				next(t, busy, "started")
				c.Store.SetOutage(true) // the client does not learn of it
				refuse(t, server, served)

				b := balance(t, client, runtime.RoundRobin)
				for range 2 {
					if got, err := through(t.Context(), b); got != "good" || err != nil {
						t.Errorf("got %q, %v", got, err)
					}
				}
				if b.InFlight(bad.ID()) != 0 || b.InFlight(good.ID()) != 0 {
					t.Error("ended calls count")
				}
				s, err := b.Direct(t.Context(), bad.ID(), "req-1", nil, nil)
				if err == nil {
					_, err = recv(t.Context(), s)
				}
				if !requestplane.NotStarted(err) {
					t.Errorf("a direct call: %v", err)
				}
				close(release)
				c.Store.SetOutage(false)
			})
		})
	}
}

func TestBalancerWithoutAnInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, d, "backend", "generate")
		b := balance(t, client, runtime.Random)
		if _, err := b.Call(t.Context(), "req-1", nil, nil); !errors.Is(err, runtime.ErrNoInstance) {
			t.Errorf("nobody: %v", err)
		}
		if _, err := b.Direct(t.Context(), 77, "req-1", nil, nil); !errors.Is(err, runtime.ErrNoInstance) {
			t.Errorf("nobody of that id: %v", err)
		}
		// One that has no address on the request plane does not count as one.
		if _, err := d.Announce(t.Context(), "backend", "generate", cluster.Transport{HTTP: "http://127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, client, d.ID())
		if _, err := b.Call(t.Context(), "req-1", nil, nil); !errors.Is(err, runtime.ErrNoInstance) || !errors.Is(err, runtime.ErrNoTransport) {
			t.Errorf("without a transport: %v", err)
		}
	})
}

// After the first item, and after an error of the handler, nothing is repeated.
func TestBalancerRepeatsNothingThatBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		calls := 0
		failing := func(began bool) requestplane.Handler {
			return func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
				calls++
				if began {
					if err := send("begun"); err != nil {
						return err
					}
				}
				return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "not now"}
			}
		}
		for _, began := range []bool{false, true} {
			endpoint := map[bool]string{false: "fails", true: "begins"}[began]
			a := c.Runtime(t, "worker-1")
			serve(t, a, endpoint, failing(began))
			serve(t, c.Runtime(t, "worker-2"), endpoint, failing(began))
			client := runtimetest.Client(t, a, "backend", endpoint)
			if err := client.Wait(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			calls = 0
			s, err := balance(t, client, runtime.Random).Call(t.Context(), "req-1", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if began {
				next(t, s, "begun")
			}
			var remote *requestplane.RemoteError
			for range 2 { // it repeats
				if err := s.Recv(t.Context(), nil); !errors.As(err, &remote) || errors.Is(err, io.EOF) {
					t.Errorf("%s: %v", endpoint, err)
				}
			}
			s.Close()
			if calls != 1 {
				t.Errorf("%s: %d calls", endpoint, calls)
			}
		}
	})
}
