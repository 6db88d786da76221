package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
	"github.com/dynctl/dynctl/internal/worker/served"
)

// Config is a worker's configuration from its agent.
type Config struct {
	Assignment cluster.Assignment
	Namespace  string
	Node       string   // node id
	Restarts   int      // starts after failures so far, for the status
	Taints     []string // labels of the node

	// Encode names the endpoint of the encode workers; the zero value means those of the
	// namespace.
	Encode cluster.Endpoint
	// Embeddings are the bytes of memory for embeddings of images.
	Embeddings media.Sizes

	Store   store.Store
	Bus     events.Bus
	Queue   events.WorkQueue
	Runtime runtime.Config // plumbing shared by the workers of a process
	// NIXL returns the configuration of a fresh agent, without its name.
	NIXL func() nixl.Config
	// Settings returns the current run-time settings, QueueDepth the last known number
	// of waiting remote prefills. Neither blocks.
	Settings   func() Settings
	QueueDepth func() int

	// Load brings up the backend: it reports progress from 0 to 1.
	Load func(ctx context.Context, progress func(float64)) (*Loaded, error)

	// LastWord, if not nil, is told how the worker ended when it publishes nothing any
	// more, just before its lease and with it its status key go. Whoever keeps the
	// status from then on writes it here, so that watchers never see it missing.
	LastWord func(ctx context.Context, err error)

	Health HealthCheck

	Metrics *metrics.Registry
	Log     *slog.Logger
}

// HealthCheck has the endpoints of a worker probed that need its engine.
type HealthCheck struct {
	Enabled       bool
	Wait, Timeout time.Duration // as of [runtime.Canary]
}

// Loaded is a model ready to serve on a device.
type Loaded struct {
	Backend engine.Backend
	// Blocks is the size of the KV pool; LeastBlocks is with how many another worker of its
	// kind would do.
	Blocks, LeastBlocks int
	// Card describes the model; the worker fills in its own limits.
	Card cluster.ModelCard
	// Files are the contents of Card.Files by name.
	Files map[string][]byte
	// Constrain, if not nil, makes what keeps one output within a constraint. Its
	// errors are about the constraint.
	Constrain func(ctx context.Context, g protocol.Guided) (engine.Constraint, error)
	// Embedding is the number of values of an image's embeddings, 0 if the model takes no
	// images. Encoder computes them; nil: this worker cannot.
	Embedding int
	Encoder   media.Encoder
	// Server is set in place of Backend, Blocks and what follows them: the engine is a server
	// that others wrote.
	Server *served.Config
	// Release gives back the shared weights, after the backend is closed, or the server.
	Release func()
}

// Settings are settings that change at run time, without a restart.
type Settings = role.Settings

// DefaultRemotePrefillTimeout is the default of Settings.RemoteTimeout.
const DefaultRemotePrefillTimeout = 30 * time.Second

// stopTimeout bounds each step of stopping.
const stopTimeout = 5 * time.Second
