package external

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Engine is one server. Its methods may run concurrently. Errors of calls are
// *requestplane.RemoteError where another worker may do better or none can:
// KindUnavailable, KindOverloaded, KindInvalidArgument; a server that cannot be reached or
// answers nonsense is KindUnavailable.
type Engine interface {
	// Probe asks what the server is. It fails with an error that wraps [ErrNotReady] while
	// the server loads or cannot be reached, and with another one if it cannot be used as it
	// is configured: the text says what to do.
	Probe(ctx context.Context) (Facts, error)
	// Health reports whether the server takes requests, without work for its engine.
	Health(ctx context.Context) error
	// Load asks how busy the server is.
	Load(ctx context.Context) (Load, error)
	// Exchange says how servers of this engine exchange KV, as configured.
	Exchange() Exchange
	// Prefill computes a prompt for a decode server: the first leg of an exchange. It
	// returns when the prompt is computed. The end of ctx gives the prompt up.
	Prefill(ctx context.Context, r *Request) (Prefilled, error)
	// Generate answers a request: alone, or as second leg if r has a Handoff or Meeting.
	// It calls emit, which may fail and ends it then, for each piece; the last piece has
	// a Finish. The end of ctx cancels the request at the server.
	Generate(ctx context.Context, r *Request, emit func(protocol.EngineOutput) error) error
	// Close closes the connections. Calls have ended.
	Close()
}

// Sleeper is an engine that can give its memory back while it has nothing to do.
type Sleeper interface {
	// CanSleep returns why the server cannot sleep at a level as it was started, nil if nothing
	// is known against it.
	CanSleep(ctx context.Context, level int) error
	// Sleep frees the memory of the KV cache, whose content is lost, and of the weights. At
	// level 1 the host's memory keeps the weights; at level 2 nothing does. Requests must have
	// ended, and the server must be awake.
	Sleep(ctx context.Context, level int) error
	// Wake takes the memory again, and after level 2 has the server load its weights again. The
	// server must be asleep.
	Wake(ctx context.Context, level int) error
	// Asleep reports whether the server sleeps, whoever has ordered it.
	Asleep(ctx context.Context) (bool, error)
}

// Encoder is an engine whose servers compute the embeddings of images, sounds and videos for each
// other, where clients' bodies have them.
type Encoder interface {
	// Items lists what a request has of them, each once.
	Items(r *Request) ([]MediaItem, error)
	// Encode has the server compute the embeddings of one item, which is the Body of r. It returns
	// what the server that has the prompt is told; nil if that one finds them without a word.
	Encode(ctx context.Context, r *Request) (json.RawMessage, error)
}

// MediaItem is an image, a sound or a video of a request.
type MediaItem struct {
	// Key is equal for items with the same content and the same options. Of an item that the
	// request gives by its address, the address is the content.
	Key [sha256.Size]byte
	// Body is a request for Encode.
	Body json.RawMessage
}

// EventQueue is an engine whose KV events wait in a queue that one consumer drains.
type EventQueue interface {
	// DrainEvents takes the events that wait; the caller closes the body.
	DrainEvents(ctx context.Context) (io.ReadCloser, error)
}

// ErrNotReady is wrapped by errors about a server that is not there yet.
var ErrNotReady = errors.New("server is not ready")

// Exchange is the order of the two legs of an exchange of KV.
type Exchange string

// The orders. Everything else about an exchange is a matter of the engine.
const (
	ExchangeNone Exchange = ""
	// ExchangeSequential computes the prompt first; its Handoff tells the decode server where
	// the KV is.
	ExchangeSequential Exchange = "sequential"
	// ExchangeConcurrent calls both servers at once, with one [Meeting].
	ExchangeConcurrent Exchange = "concurrent"
)

// Facts is what a server says of itself; zero where it does not say.
type Facts struct {
	Version string
	// Models are the names that it serves; Parents has the base model of those that are
	// LoRA adapters.
	Models  []string
	Parents map[string]string
	// Adapters are the LoRA adapters of the model that requests may name, sorted; nil if the
	// engine takes no names of adapters here. They may change while the server runs.
	Adapters []string
	// MaxModelLen limits prompt and answer, in tokens.
	MaxModelLen int
	BlockSize   int // tokens of a KV block
	KVBlocks    int
	MaxSeqs     int // that it runs at a time
	KVDType     string
	// TensorParallel is the number of ranks that share the heads.
	TensorParallel int
	// Ranks is the number of data-parallel ranks behind the server; 0 and 1 mean one.
	Ranks int
	// Mode is the role for which it was started, "prefill" or "decode"; empty if it takes
	// any.
	Mode string
	// Meets is where decode servers meet it, set by prefill servers of a concurrent
	// exchange.
	Meets *cluster.ServerPlace
	// Pair is equal for servers that can exchange KV, as far as they tell: engine,
	// connector, version, model and type of the KV.
	Pair string
}

// Meeting is one exchange at a place. Both legs get the same one; each attempt has another
// room.
type Meeting struct {
	cluster.ServerPlace
	Room uint64 // below 2^63
}

// Load is how busy a server is. A nil figure is one that the server does not tell: that is not
// zero.
type Load struct {
	Running *int // requests
	Waiting *int
	KVUsage *float64 // share of the KV pool that requests use, 0 to 1
	// PrefixHits and PrefixLookups count tokens of prompts that were found and looked up in
	// the prefix cache.
	PrefixHits, PrefixLookups *int64
	// Prompt and Generated count tokens.
	Prompt, Generated *int64
}

// Request is one prompt for a server.
type Request struct {
	// PreprocessedRequest has the prompt as TokenIDs, or as the client's Body.
	*protocol.PreprocessedRequest
	// Model is the name by which the server knows the model, or one of its adapters.
	Model string
	// Handoff is what Prefill of another server returned; Meeting is the place of both legs.
	// At most one is set.
	Handoff json.RawMessage
	Meeting *Meeting
	// Encoded is what Encode of other servers returned for items of the request, those among them
	// that it returned nil for; nil if none were encoded elsewhere.
	Encoded []json.RawMessage
}

// Prefilled is the outcome of a first leg.
type Prefilled struct {
	// Handoff is for the decode server, byte for byte as the server gave it; nil with a
	// Meeting, and with Answer.
	Handoff json.RawMessage
	// PromptTokens and CachedTokens count the prompt and what the server found of it in its
	// cache, as far as it tells; -1 where it does not.
	PromptTokens, CachedTokens int
	// Lease is how long the server keeps the KV at least; 0 if unknown.
	Lease time.Duration
	// Answer, if not nil, is the whole answer: there is no second leg.
	Answer []protocol.EngineOutput
}
