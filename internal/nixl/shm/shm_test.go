//go:build linux

package shm_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// env makes agents that reach each other over shm only.
func env(o shm.Options) nixltest.Env {
	pool := shm.NewPool(0)
	return nixltest.Env{Name: shm.Name, Arenas: true, Transports: func() []nixl.Transport { return []nixl.Transport{pool.Transport(o)} }}
}

func TestBehavior(t *testing.T) {
	nixltest.Run(t, func(testing.TB) nixltest.Env { return env(shm.Options{}) })
}
