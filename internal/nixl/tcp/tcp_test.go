package tcp_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

func TestBehavior(t *testing.T) {
	nixltest.Run(t, func(testing.TB) nixltest.Env {
		return nixltest.Env{Name: tcp.Name, Transports: func() []nixl.Transport { return []nixl.Transport{tcp.New(tcp.Options{})} }}
	})
}
