// Package kvtest opens KV data planes inside one test, over memory. Start with [New].
// It is for tests only.
package kvtest

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker/kv"
)

// Options configures the backends whose pools are registered.
var Options = mock.Options{BlockSize: 16, VocabSize: 300, MaxContext: 2048}

// Digest is that of the model of all planes.
const Digest = "sha256:test"

// Blocks is the number of blocks in a pool.
const Blocks = 32

// Net is shared by the planes of a test.
type Net struct {
	Store *store.Memory
	peers *local.Registry
}

// New returns a net without planes.
func New(t testing.TB) *Net {
	s := store.NewMemory(nil)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Net{Store: s, peers: local.NewRegistry(1)}
}

// Open opens the plane of a worker; it is closed when the test ends.
func (n *Net) Open(t testing.TB, worker string, changes ...func(*kv.Config)) *kv.Plane {
	t.Helper()
	b := mock.New(Options)
	mem, err := b.AllocKV(Blocks)
	if err != nil {
		t.Fatal(err)
	}
	cfg := kv.Config{
		Worker: worker, Namespace: cluster.DefaultNamespace, Store: n.Store, Log: slog.New(slog.DiscardHandler),
		NIXL:  nixl.Config{Key: nixltest.Key, Transports: []nixl.Transport{n.peers.Transport()}},
		Model: Digest, HashSeed: cluster.DefaultHashSeed, Shape: b.Info().KV, Blocks: Blocks, Memory: mem,
		Proof: time.Second,
	}
	for _, change := range changes {
		change(&cfg)
	}
	p, err := kv.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(fmt.Errorf("close the plane of %s: %w", worker, err))
		}
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}
