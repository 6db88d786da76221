//go:build linux

package cma_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/cma"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/fenced/fencedtest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env makes agents that reach each other over cma only, with memory of the Go heap,
// which no other process can map.
func env(o fenced.Options) nixltest.Env {
	pool := fenced.NewPool(0)
	return nixltest.Env{Name: cma.Name, Transports: func() []nixl.Transport { return []nixl.Transport{cma.New(pool, o)} }}
}

func TestBehavior(t *testing.T) {
	nixltest.Run(t, func(testing.TB) nixltest.Env { return env(fenced.Options{}) })
}

// TestBehaviorArenas is the same with memory that can be mapped as well.
func TestBehaviorArenas(t *testing.T) {
	nixltest.Run(t, func(testing.TB) nixltest.Env {
		e := env(fenced.Options{})
		e.Arenas = true
		return e
	})
}

var processes = fencedtest.Suite{Name: cma.Name, Env: env}

func TestChild(t *testing.T) { processtest.Child(t, processes.Processes()) }

// TestProcesses needs to be allowed both ways: a child may not touch its parent
// where Yama is strict.
func TestProcesses(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && string(b) != "0\n" {
		t.Skipf("kernel.yama.ptrace_scope is %s", b)
	}
	processes.Run(t)
}
