//go:build linux

package ucx

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/handshake/handshaketest"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/wire"
)

func TestDoor(t *testing.T) {
	newHandMade(t) // skips
	start := func(t *testing.T, name string, key handshake.Key, timeout time.Duration) (*nixl.Agent, *transport) {
		o := overTCP()
		o.ConnectTimeout = timeout
		tr := New(o).(*transport)
		e := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{tr} }}
		return e.Agent(t, name, func(c *nixl.Config) { c.Key = key }), tr
	}
	handshaketest.Door{
		Protocol: spoken,
		Serve: func(t *testing.T, key handshake.Key, timeout time.Duration) handshaketest.Listener {
			b, tr := start(t, "b", key, timeout)
			return handshaketest.Listener{
				Dial: func() (net.Conn, error) { return net.Dial("tcp", tr.ln.Addr().String()) },
				Use: func() error {
					a, _ := start(t, "a", key, 0)
					nixltest.Load(t, a, b)
					return a.Notify(nixltest.Context(t), "b", []byte("hi"))
				},
				Reached: func() int { return len(b.Peers()) },
			}
		},
		Call: func(t *testing.T, key handshake.Key, accept func(net.Conn)) error {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
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
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, _, err = dialPeer(ctx, ln.Addr().String(), key, hello{ends: wire.Ends{To: nixl.Identity{Name: "b"}}, address: []byte{1}})
			return err
		},
		// The hello of version 2, which began the conversation.
		Old: "\x80\x00\x00\x00" + string(rune(kindHello)) + "\x00" + string(hello{address: []byte{1}}.encode()),
	}.Run(t)
}
