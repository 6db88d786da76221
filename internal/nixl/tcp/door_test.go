package tcp

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
	handshaketest.Door{
		Protocol: spoken,
		Serve: func(t *testing.T, key handshake.Key, timeout time.Duration) handshaketest.Listener {
			withKey := func(c *nixl.Config) { c.Key = key }
			v := newVictim(t, 4096, Options{ConnectTimeout: timeout}, withKey)
			return handshaketest.Listener{
				Dial: func() (net.Conn, error) { return net.Dial("tcp", v.tr.ln.Addr().String()) },
				Use: func() error {
					a := options(Options{}).Agent(t, "a", withKey)
					nixltest.Load(t, a, v.agent)
					return a.Notify(nixltest.Context(t), "b", []byte("hi"))
				},
				Reached: func() int { return len(v.agent.Peers()) },
			}
		},
		Call: func(t *testing.T, key handshake.Key, accept func(net.Conn)) error {
			dial := func(context.Context, string) (net.Conn, error) {
				client, server := handshaketest.Pair(t)
				go accept(server) // until the client hangs up
				return client, nil
			}
			a := options(Options{dial: dial, Conns: 1}).Agent(t, "a", func(c *nixl.Config) { c.Key = key })
			b := options(Options{}).Agent(t, "b", func(c *nixl.Config) { c.Key = key })
			nixltest.Load(t, a, b)
			return a.Notify(nixltest.Context(t), "b", []byte("hi"))
		},
		// The hello of version 2, which began the conversation.
		Old: string(frame{header{kind: kindHello}, hello{ends: wire.Ends{From: nixl.Identity{Name: "a", Incarnation: "1"}}}.encode()}.append(nil)),
	}.Run(t)
}
