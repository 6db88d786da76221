package tcp_test

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

func env(o tcp.Options) nixltest.Env {
	return nixltest.Env{Name: tcp.Name, Transports: func() []nixl.Transport { return []nixl.Transport{tcp.New(o)} }}
}

var processes = processtest.Suite{
	Name: tcp.Name,
	Env: func(silence time.Duration) nixltest.Env {
		e := env(tcp.Options{SilenceTimeout: silence})
		e.Arenas = true
		return e
	},
}

func TestChild(t *testing.T) { processtest.Child(t, processes) }

func TestProcesses(t *testing.T) { processes.Run(t) }
