package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says what to follow. Endpoint or Drain must be set.
type Config struct {
	// Endpoint is where data-parallel rank 0 of a server publishes, as tcp://host:port; each
	// further rank uses the next port. With Listen, or with a host of *, the server connects,
	// and the follower listens there.
	Endpoint string
	Listen   bool
	// Replay is where the server gives messages again, likewise; empty if nowhere.
	Replay string
	// Topic is what the first frames of messages begin with; empty takes all.
	Topic string
	// Ranks is the number of data-parallel ranks; 0 means one.
	Ranks int
	// Drain takes the events that wait in a server of TensorRT-LLM: it returns the body of the
	// answer to POST /kv_cache_events, which is closed after use.
	Drain func(ctx context.Context) (io.ReadCloser, error)

	// BlockSize is the number of tokens of a router block, HashSeed the seed of its hashes; those
	// of blocks that an adapter computed have [blockhash.AdapterSeed].
	BlockSize int
	HashSeed  uint64
	// MaxBytes bounds what is remembered of the server's blocks; 0 means DefaultMaxBytes.
	MaxBytes int64
	Sink     Sink
	Log      *slog.Logger
}

// DefaultMaxBytes is enough for 700,000 blocks of 16 tokens.
const DefaultMaxBytes = 256 << 20

// Bounds.
const (
	maxRanks     = 256
	maxBlockSize = 1 << 14
	maxGroups    = 64
	maxTags      = 16 // unknown ones that are logged
)

// Follower follows the KV events of one server.
type Follower struct {
	cfg       Config
	serves    string // the adapter that is served in place of the base; usually none
	times     times
	addrs     []string // of publishers, by rank; empty if it listens
	replays   []string // by rank; empty if there are none
	listeners []net.Listener

	mu      sync.Mutex
	blocks  *blocks
	sources map[*source]bool
	figures Figures
	logged  map[string]time.Time // by complaint
	tags    map[string]bool      // unknown ones
}

// times are the limits of waits.
type times struct {
	dial, greet, message   time.Duration
	replay, replayIdle     time.Duration
	cooldown               time.Duration // between two replays after gaps
	retryMin, retryMax     time.Duration
	pollMin, pollMax       time.Duration
	complaint              time.Duration // between two of a kind
	pollTimeout, healthyIn time.Duration
}

var defaultTimes = times{
	dial: 5 * time.Second, greet: 10 * time.Second, message: 30 * time.Second,
	replay: 2 * time.Minute, replayIdle: 2 * time.Second, cooldown: 30 * time.Second,
	retryMin: 100 * time.Millisecond, retryMax: 5 * time.Second,
	pollMin: 50 * time.Millisecond, pollMax: time.Second,
	complaint: 30 * time.Second, pollTimeout: 30 * time.Second, healthyIn: 10 * time.Second,
}

// Figures count what happened so far.
type Figures struct {
	Publishers int // that are connected
	Batches    uint64
	Events     uint64
	// Gaps counts losses of messages, Replays those that were made good, and Restarts servers
	// that began anew. Forgotten counts how often blocks of a rank were given up because it
	// was not known any more what it holds.
	Gaps, Replays, Restarts, Forgotten uint64
	// Unknown counts events of unknown types, Undecodable messages that make no sense.
	Unknown, Undecodable uint64
	// Ignored counts blocks that no prompt finds: with a salt, an image or the mere number of an
	// adapter, of layers without full attention, or in other memory than that of the device.
	// Orphans counts those whose parent is unknown, or ignored.
	Ignored, Orphans uint64
	// Crowded and Dropped count blocks that were left out to bound work and memory.
	Crowded, Dropped uint64
	ServerBlocks     int // known
	Blocks           int // of the router, held
}

// source is one publisher: a rank of a server, or one run of it.
type source struct {
	rank   *rank
	number int // of the endpoint
	// next is the sequence number of the next message, if known; last identifies the one
	// before.
	known    bool
	next     uint64
	last     uint64
	groups   map[int]bool // of layers: whether they count
	replayed time.Time    // the last time after a gap
}

// New checks a configuration, and listens where servers are to connect. The caller must call
// Run or Close.
func New(cfg Config) (*Follower, error) {
	if cfg.BlockSize < 1 || cfg.BlockSize > maxBlockSize {
		return nil, fmt.Errorf("KV events: router blocks of %d tokens", cfg.BlockSize)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	cfg.Ranks = max(cfg.Ranks, 1)
	if cfg.Ranks > maxRanks {
		return nil, fmt.Errorf("KV events: %d ranks, more than %d", cfg.Ranks, maxRanks)
	}
	if (cfg.Endpoint == "") == (cfg.Drain == nil) {
		return nil, errors.New("KV events: neither an endpoint nor a queue to drain, or both")
	}
	f := &Follower{
		cfg: cfg, times: defaultTimes, blocks: newBlocks(cfg.BlockSize, cfg.MaxBytes, cfg.Sink),
		sources: map[*source]bool{}, logged: map[string]time.Time{}, tags: map[string]bool{},
	}
	if cfg.Endpoint == "" {
		return f, nil
	}
	addrs, err := endpoints(cfg.Endpoint, cfg.Ranks)
	if err != nil {
		return nil, err
	}
	if cfg.Replay != "" {
		if f.replays, err = endpoints(cfg.Replay, cfg.Ranks); err != nil {
			return nil, err
		}
		if strings.HasPrefix(f.replays[0], ":") {
			return nil, errors.New("KV events: messages are asked for at an address, not at *")
		}
	}
	if !strings.HasPrefix(addrs[0], ":") && !cfg.Listen {
		if strings.HasSuffix(addrs[0], ":0") {
			return nil, fmt.Errorf("KV events: %q has no port to connect to", cfg.Endpoint)
		}
		f.addrs = addrs
		return f, nil
	}
	for _, addr := range addrs {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("KV events: listen for the server: %w", err)
		}
		f.listeners = append(f.listeners, ln)
	}
	return f, nil
}

// Serves says that a LoRA adapter of the server is served in place of its base: its blocks are
// found by plain prompts, and those of the base by none. It must be called before Run.
func (f *Follower) Serves(adapter string) { f.serves = adapter }

// endpoints returns the addresses of all ranks; a host of * becomes an empty one.
func endpoints(endpoint string, ranks int) ([]string, error) {
	at, ok := strings.CutPrefix(endpoint, "tcp://")
	host, port, err := net.SplitHostPort(at)
	first, perr := strconv.Atoi(port)
	if !ok || err != nil || perr != nil || host == "" {
		return nil, fmt.Errorf("KV events: %q is not of the form tcp://host:port", endpoint)
	}
	if host == "*" {
		host = ""
	}
	if first < 0 || first+ranks-1 > 65535 {
		return nil, fmt.Errorf("KV events: %q and the ports of %d ranks behind it are no ports", endpoint, ranks)
	}
	var addrs []string
	for i := range ranks {
		if port := first + i; first > 0 {
			addrs = append(addrs, net.JoinHostPort(host, strconv.Itoa(port)))
		} else {
			addrs = append(addrs, net.JoinHostPort(host, "0")) // any
		}
	}
	return addrs, nil
}

// Close ends listening, of a follower that is not to Run.
func (f *Follower) Close() {
	for _, ln := range f.listeners {
		_ = ln.Close()
	}
}

// Addrs returns where the follower listens, by rank; nil if it connects.
func (f *Follower) Addrs() (addrs []net.Addr) {
	for _, ln := range f.listeners {
		addrs = append(addrs, ln.Addr())
	}
	return addrs
}

// Run follows until ctx ends. When it returns, no goroutine is left and the sink is called no
// more.
func (f *Follower) Run(ctx context.Context) {
	defer f.Close()
	var running sync.WaitGroup
	defer running.Wait()
	if f.cfg.Drain != nil {
		running.Go(func() { f.drain(ctx) })
	}
	for number, addr := range f.addrs {
		running.Go(func() { f.connect(ctx, number, addr) })
	}
	for number, ln := range f.listeners {
		running.Go(func() { f.accept(ctx, number, ln) })
	}
}

// Figures returns the present figures.
func (f *Follower) Figures() Figures {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.figures
	b := f.blocks
	now.Orphans, now.Crowded, now.Dropped = b.ignored.orphans, b.ignored.crowded, b.ignored.dropped
	now.ServerBlocks, now.Blocks = b.nodes, len(b.held)
	return now
}

// Resident returns the hashes of all router blocks that the server holds, as far as is known,
// parents before their children. It calls at at that moment, between two calls of the sink.
func (f *Follower) Resident(ctx context.Context, at func()) ([]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	at()
	return f.blocks.resident(), nil
}

// Forget gives all blocks up, of a server that is known to have lost them.
func (f *Follower) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.sources {
		f.forget(s)
	}
}

// add makes the blocks of a publisher count.
func (f *Follower) add(number int) *source {
	s := &source{rank: newRank(), number: number, groups: map[int]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sources[s] = true
	return s
}

// leave forgets a publisher.
func (f *Follower) leave(s *source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(s)
	delete(f.sources, s)
}

// forget gives up what a publisher holds: the next message is as good as the first. The caller
// holds mu.
func (f *Follower) forget(s *source) {
	if s.known || len(s.rank.nodes) > 0 {
		f.figures.Forgotten++
	}
	s.known, s.next = false, 0
	f.blocks.clear(s.rank)
}

// complain logs a warning, but seldom the same one. The caller holds mu.
func (f *Follower) complain(what string, attrs ...slog.Attr) {
	now := time.Now()
	if last, ok := f.logged[what]; ok && now.Sub(last) < f.times.complaint {
		return
	}
	f.logged[what] = now
	f.cfg.Log.LogAttrs(context.Background(), slog.LevelWarn, what, attrs...) //nolint:sloglint // what is a constant of the caller
}
