//go:build linux

package fenced

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/handshake/handshaketest"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

func TestDoor(t *testing.T) {
	pool := NewPool(0)
	start := func(t *testing.T, name string, key handshake.Key, timeout time.Duration) (*nixl.Agent, *transport) {
		tr := pool.Transport(mapped{}, Options{ConnectTimeout: timeout}).(*transport)
		e := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{tr} }}
		return e.Agent(t, name, func(c *nixl.Config) { c.Key = key }), tr
	}
	handshaketest.Door{
		Protocol: spoken,
		Serve: func(t *testing.T, key handshake.Key, timeout time.Duration) handshaketest.Listener {
			b, tr := start(t, "b", key, timeout)
			return handshaketest.Listener{
				Dial: func() (net.Conn, error) { return net.Dial("unix", tr.ln.Addr().String()) },
				Use: func() error {
					a, _ := start(t, "a", key, 0)
					nixltest.Load(t, a, b)
					return a.Notify(nixltest.Context(t), "b", []byte("hi"))
				},
				Reached: func() int { return len(b.Peers()) },
			}
		},
		Call: func(t *testing.T, key handshake.Key, accept func(net.Conn)) error {
			at, err := here()
			if err != nil {
				t.Fatal(err)
			}
			info := connInfo{place: at, socket: fmt.Sprintf("@dynamo-nixl-test-%d-%d", os.Getpid(), rand.Uint32())}
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: info.socket, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				nc, err := ln.Accept()
				if err == nil {
					accept(nc)
					_ = nc.Close()
				}
			}()
			defer func() { _ = ln.Close(); <-done }()
			a, tr := start(t, "a", key, 0)
			s := newSession(tr, nixl.Remote{Identity: nixl.Identity{Name: "b"}, Conn: info.encode()})
			err = s.connect()
			if err == nil {
				s.c.fail(errors.New("end of the test"))
			}
			s.owner.close()
			_ = a.Close()
			return err
		},
		// The hello of version 3, which began the conversation.
		Old: string(frame{header: header{kind: kindHello}, body: hello{ends: wire.Ends{From: nixl.Identity{Name: "a", Incarnation: "1"}}}.encode()}.append(nil)),
	}.Run(t)
}

// Connections that prove nothing take no place of a peer; a peer too many is refused.
func TestPlacesAreForPeers(t *testing.T) {
	pool := NewPool(0)
	start := func(name string) (*nixl.Agent, *transport) {
		tr := pool.Transport(mapped{}, Options{MaxInbound: 1}).(*transport)
		return nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{tr} }}.Agent(t, name), tr
	}
	b, tr := start("b")
	silent, err := net.Dial("unix", tr.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for i, name := range []string{"first", "second"} {
		a, _ := start(name)
		nixltest.Load(t, a, b)
		err := a.Notify(nixltest.Context(t), "b", []byte("hi"))
		if full := i > 0; full != (err != nil) {
			t.Errorf("the %s peer: %v", name, err)
		}
	}
	if n := b.Stats().Refused[nixl.RefusedLimit]; n != 1 {
		t.Errorf("%d are refused because there are too many, want 1", n)
	}
}
