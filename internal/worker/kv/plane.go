package kv

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/store"
)

// Errors of exchanging KV blocks.
var (
	// ErrMismatch means that two workers can never exchange KV blocks.
	ErrMismatch = errors.New("KV blocks do not match")
	// ErrUnwanted means that the worker that asked for KV does not want it any more.
	ErrUnwanted = errors.New("no longer wanted")
	// ErrGone means that the store has no metadata of a worker. Either it has ended, or the
	// store has lost its data and the worker is about to write it again.
	ErrGone = errors.New("worker is gone")
)

// DefaultProof limits the wait for the proof that no peer accesses blocks under a ticket.
// After that the worker quarantines or keeps the blocks.
const DefaultProof = 2 * time.Second

// Config is the configuration of a plane.
type Config struct {
	Worker    string // name of the worker
	Namespace string
	Store     store.Store
	NIXL      nixl.Config // of a fresh agent, without its name
	Log       *slog.Logger

	// Model is the digest of the model; with HashSeed and Shape it says what a block means.
	Model    string
	HashSeed uint64
	Shape    kvlayout.Shape
	Blocks   int
	Memory   engine.KVPool // which outlives the plane

	Proof time.Duration // DefaultProof; shorter in tests
}

// Plane is the KV data plane of one worker.
type Plane struct {
	cfg      Config
	agent    *nixl.Agent
	pool     *pool
	resident *resident
	moves    movements
	moved    counts
}

// Open starts a NIXL agent and registers the KV pool with it. The name of the agent is
// that of the worker and a random incarnation.
func Open(cfg Config) (*Plane, error) {
	incarnation := make([]byte, 4)
	_, _ = rand.Read(incarnation) // never fails
	ncfg := cfg.NIXL
	ncfg.Name, ncfg.Log = cfg.Worker+"."+hex.EncodeToString(incarnation), cfg.Log
	// Blocks may go to another number of ranks, in a piece for each KV head at most.
	ncfg.Limits.Descs = max(ncfg.Limits.Descs, nixl.DefaultDescs, cfg.Blocks*cfg.Shape.KVHeads)
	agent, err := nixl.NewAgent(ncfg)
	if err != nil {
		return nil, fmt.Errorf("start NIXL agent: %w", err)
	}
	pool, err := registerPool(agent, cfg.Shape, cfg.Memory)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("register the KV pool: %w", err), agent.Close())
	}
	return &Plane{cfg: cfg, agent: agent, pool: pool, resident: newResident(cfg.Memory, cfg.Blocks)}, nil
}

// Close closes the agent. After an error a stopped process may still write into the
// memory of the pool, which must stay mapped.
func (p *Plane) Close() error { return p.agent.Close() }

// Agent is the NIXL agent, whose figures the worker publishes.
func (p *Plane) Agent() *nixl.Agent { return p.agent }

// Name is the name of the NIXL agent.
func (p *Plane) Name() string { return p.agent.Name() }

// Descs is all memory of some blocks.
func (p *Plane) Descs(blocks []int32) []nixl.Desc { return p.pool.descs(blocks) }

// Moved counts one finished transfer.
func (p *Plane) Moved(bytes int64, took time.Duration) { p.moved.add(bytes, took) }

// Figures fills in what the transfers of this worker have moved.
func (p *Plane) Figures(s *cluster.WorkerStats) { p.moved.addTo(s) }

// counts add up what transfers have moved.
type counts struct {
	mu              sync.Mutex
	n, bytes, nanos uint64
	times           cluster.Histogram
}

func (c *counts) add(bytes int64, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	c.bytes += uint64(bytes)
	c.nanos += uint64(took)
	c.times.Observe(took)
}

func (c *counts) addTo(s *cluster.WorkerStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.TransfersTotal, s.TransferBytesTotal, s.TransferNanosTotal = c.n, c.bytes, c.nanos
	if c.n > 0 {
		times := c.times
		s.TransferTimes = &times
	}
}
