package runtime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
)

// One runtime serves endpoints of the same name in several namespaces and components, each
// with its own handler.
func TestSeveralNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		all := []runtime.Endpoint{
			d.In("").Component("backend").Endpoint("generate"),
			d.In("").Component("other").Endpoint("generate"),
			d.In("east").Component("backend").Endpoint("generate"),
			d.In("east").Namespace("one").Component("backend").Endpoint("generate"),
		}
		want := []string{"dyn://dynamo.backend.generate", "dyn://dynamo.other.generate", "dyn://east.backend.generate", "dyn://east.one.backend.generate"}
		for i, e := range all {
			if e.Name().String() != want[i] {
				t.Errorf("%s, want %s", e.Name(), want[i])
			}
			s, err := e.Serve(t.Context(), echo(want[i]))
			if err != nil {
				t.Fatal(err)
			}
			if s.Instance().Of() != e.Name() {
				t.Errorf("registered as %+v", s.Instance())
			}
		}
		if _, err := all[1].Serve(t.Context(), echo("")); !errors.Is(err, requestplane.ErrEndpointExists) {
			t.Errorf("served twice: %v", err)
		}
		if _, err := d.In("East").Component("backend").Endpoint("generate").Serve(t.Context(), echo("")); !errors.Is(err, cluster.ErrName) {
			t.Errorf("a bad name: %v", err)
		}
		for i, e := range all {
			client, err := e.Client(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ask(t.Context(), client, only(t, client)); got != want[i] || err != nil {
				t.Errorf("%s answers %q, %v", want[i], got, err)
			}
			client.Close()
		}
	})
}

// Without discovery, an address and a name are enough to call an endpoint.
func TestStaticMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		name := cluster.Endpoint{Namespace: "a.b", Component: "backend", Name: "generate"}
		alone := func(cfg *runtime.Config) { cfg.Store, cfg.Static = nil, []cluster.Instance{} }
		d := c.Runtime(t, "worker-1", alone)
		served, err := d.Endpoint(name).Serve(t.Context(), echo("hello"))
		if err != nil {
			t.Fatal(err)
		}
		peer := runtime.StaticInstance(name, c.Config(t, "").Server.Addr()) // of nobody that serves it
		address, _, _ := cutPath(served.Instance().Transport.TCP)
		caller := c.Runtime(t, "", func(cfg *runtime.Config) {
			cfg.Store, cfg.Static = nil, []cluster.Instance{peer, runtime.StaticInstance(name, address)}
		})
		client, err := caller.Endpoint(name).Client(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if n := len(client.Instances()); n != 2 {
			t.Fatalf("%d instances", n)
		}
		b := balance(t, client, runtime.RoundRobin)
		for range 4 {
			if got, err := through(t.Context(), b); got != "hello" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		}
		if peer.InstanceID == runtime.StaticInstance(name, address).InstanceID || peer.InstanceID >= 1<<53 {
			t.Errorf("id %s", peer.InstanceID)
		}
		for what, change := range map[string]func(*runtime.Config){
			"a store, too": func(cfg *runtime.Config) { cfg.Static = []cluster.Instance{} },
			"neither":      func(cfg *runtime.Config) { cfg.Store = nil },
			"a bad name":   func(cfg *runtime.Config) { cfg.Store, cfg.Static = nil, []cluster.Instance{{}} },
		} {
			cfg := c.Config(t, "")
			change(&cfg)
			if _, err := runtime.New(t.Context(), cfg); err == nil {
				t.Errorf("%s: accepted", what)
			}
		}
	})
}

func cutPath(addr string) (host, path string, ok bool) {
	for i := range addr {
		if addr[i] == '/' {
			return addr[:i], addr[i+1:], true
		}
	}
	return addr, "", false
}

// Shutdown takes endpoints out of discovery first, lets requests end, and revokes last.
func TestShutdownInPhases(t *testing.T) {
	for name, ends := range map[string]bool{"the request ends": true, "the request does not end": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := runtimetest.New(t)
				d, other := c.Runtime(t, "worker-1"), c.Runtime(t, "")
				release := make(chan struct{})
				served := serve(t, d, "generate", hold(release))
				if _, err := d.PutOwned(t.Context(), fixed("status"), byID("draining")); err != nil {
					t.Fatal(err)
				}
				client := runtimetest.Client(t, other, "backend", "generate")
				inst := only(t, client)
				stream, err := client.Call(t.Context(), inst, "req-1", nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				next(t, stream, "started")

				begin := time.Now()
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				over := make(chan error, 1)
				go func() { over <- d.Shutdown(limited) }()
				synctest.Wait()
				if len(client.All()) != 0 || value(t, c.Store, "status") == "" || served.InFlight() != 1 {
					t.Errorf("first phase: instances %v, status %q, %d requests", client.All(), value(t, c.Store, "status"), served.InFlight())
				}
				if _, err := ask(t.Context(), client, inst); !errors.Is(err, requestplane.ErrDraining) {
					t.Errorf("a new request: %v", err)
				}
				time.Sleep(time.Second)
				if ends {
					close(release)
					if answer, err := recv(t.Context(), stream); answer != "done" || err != nil {
						t.Errorf("the running request: %q, %v", answer, err)
					}
				}
				err = <-over
				if took := time.Since(begin); ends && (err != nil || took != time.Second) || !ends && (!errors.Is(err, context.DeadlineExceeded) || took != time.Minute) {
					t.Errorf("after %s: %v", took, err)
				}
				if value(t, c.Store, "status") != "" {
					t.Error("the lease goes on")
				}
				if !ends {
					close(release)
				}
			})
		})
	}
}

func TestStaticInstanceOverHTTP(t *testing.T) {
	name := cluster.Endpoint{Namespace: "dynamo", Component: "backend", Name: "generate"}
	const server = "http://10.0.0.5:7370/v1/rpc"
	inst := runtime.StaticInstance(name, server)
	if want := server + "/dynamo.backend.generate"; inst.Transport.TCP != "" || inst.Transport.Address() != want {
		t.Errorf("transport %+v, want %s", inst.Transport, want)
	}
}
