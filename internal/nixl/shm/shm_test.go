//go:build linux

package shm_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/fenced/fencedtest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// env makes agents that reach each other over shm only.
func env(o fenced.Options) nixltest.Env {
	pool := fenced.NewPool(0)
	return nixltest.Env{Name: shm.Name, Arenas: true, Transports: func() []nixl.Transport { return []nixl.Transport{shm.New(pool, o)} }}
}

func TestBehavior(t *testing.T) {
	nixltest.Run(t, func(testing.TB) nixltest.Env { return env(fenced.Options{}) })
}

var processes = fencedtest.Suite{Name: shm.Name, Env: env}

func TestChild(t *testing.T) { processtest.Child(t, processes.Processes()) }

func TestProcesses(t *testing.T) { processes.Run(t) }
