package local_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBehavior(t *testing.T) {
	nixltest.Run(t, func(testing.TB) nixltest.Env {
		reg := local.NewRegistry(0)
		return nixltest.Env{Name: local.Name, Transports: func() []nixl.Transport { return []nixl.Transport{reg.Transport()} }}
	})
}
