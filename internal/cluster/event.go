package cluster

import (
	"slices"
	"time"
)

// Event topics; the full subject is namespace.{ns}.component.{component}.{topic}.
const (
	TopicKVEvents        = "kv-events"         // [KVEvent], by every worker
	TopicKVPositions     = "kv-positions"      // [KVPosition], by workers shortly after KV events
	TopicEncodings       = "encodings"         // [Encodings], by workers that encode images, at intervals
	TopicWorkerStatus    = "worker-status"     // [WorkerStatus], by every worker, each second
	TopicRouterDecisions = "router-decisions"  // [RouterDecision], by frontends
	TopicFlights         = "flights"           // [FlightEvents], by frontends, at least each second
	TopicFrontendStats   = "frontend-stats"    // [FrontendStats], by frontends, each second
	TopicTopology        = "topology"          // [TopologyEvent], by the controller
	TopicNodeStats       = "node-stats"        // [NodeStats], by nodes with GPUs, each second
	TopicPlanner         = "planner-decisions" // planner.Report, by the node that leads
	TopicQueueDepth      = "queue-depth"       // [QueueDepth], by the node that asks the prefill queue
)

// QueueDepth tells how many remote prefills wait for a worker.
type QueueDepth struct {
	Node    string `json:"node"` // that asked, by its id
	Waiting int    `json:"waiting"`
}

// KVEventKind is the kind of a change in a worker's prefix cache.
type KVEventKind string

// Kinds of KV events.
const (
	KVStored  KVEventKind = "stored"
	KVRemoved KVEventKind = "removed"
	KVCleared KVEventKind = "cleared"
)

// KVEvent reports blocks that a worker's prefix cache gained or lost. Event ids of one
// epoch increase by one from 0, so that a reader can detect lost events. It asks the
// worker's endpoint kv_events for them.
type KVEvent struct {
	WorkerID InstanceID `json:"worker_id"`
	Worker   string     `json:"worker"`
	// Epoch is a random number of the engine's cache: another one means an empty cache.
	Epoch   uint64      `json:"epoch"`
	EventID uint64      `json:"event_id"`
	Kind    KVEventKind `json:"kind"`
	// Tier is where the blocks are: device (also if empty), host_pinned or disk.
	Tier string `json:"storage_tier,omitempty"`
	// ParentHash is the sequence hash before the first stored block, if any.
	ParentHash *uint64         `json:"parent_hash,omitempty"`
	Stored     []KVStoredBlock `json:"stored,omitempty"`
	// Removed holds the block (sequence) hashes that left the cache.
	Removed []uint64 `json:"removed,omitempty"`
	// Count is the number of blocks, also when the whole cache was cleared.
	Count int `json:"count"`
	// StartPosition is the index of the first stored block in its prompt.
	StartPosition int       `json:"start_position"`
	Reason        string    `json:"reason,omitempty"` // removed: lru
	Time          time.Time `json:"time"`
}

// KVStoredBlock is one stored block: its sequence hash and the local hash of its tokens.
type KVStoredBlock struct {
	BlockHash  uint64 `json:"block_hash"`
	TokensHash uint64 `json:"tokens_hash"`
}

// KVPosition is how far the KV events of a worker have come, so that a reader notices the
// loss of the last of them.
type KVPosition struct {
	WorkerID InstanceID `json:"worker_id"`
	Epoch    uint64     `json:"epoch"`
	Next     uint64     `json:"next"` // id of the next event
}

// RouterDecision records the choice of a worker for one request, and the terms of the
// choice.
type RouterDecision struct {
	RequestID  string    `json:"request_id"`
	Time       time.Time `json:"time"`
	Model      string    `json:"model"`
	Phase      Role      `json:"phase"` // the role that was chosen for
	Policy     string    `json:"policy"`
	Chosen     string    `json:"chosen"` // worker name; empty if none
	PromptToks int       `json:"prompt_tokens"`
	Blocks     int       `json:"blocks"` // full blocks of the prompt
	DecidedNS  int64     `json:"decided_ns"`
	// Prefill is the name of the prefill worker that computed the prompt, or "local";
	// empty until known. PrefillWhy gives the reason for local, and in the prefill phase that
	// for remote. PrefillWay says how the KV came from elsewhere: queue, direct, pull or
	// background.
	Prefill    string `json:"prefill,omitempty"`
	PrefillWhy string `json:"prefill_why,omitempty"`
	PrefillWay string `json:"prefill_way,omitempty"`
	// Overlap counts the blocks that the chosen worker found in its cache. The worker
	// reports it after the decision; it is known once Prefill is.
	Overlap int `json:"overlap"`
	// OverlapUnknown is set where the engine does not tell that, or only at the end.
	OverlapUnknown bool `json:"overlap_unknown,omitempty"`
	// Predicted counts the blocks that the chosen worker should find, by the frontend's
	// index at the time of the decision.
	Predicted int `json:"predicted"`
	// Reusable counts the leading blocks that at least one worker held, whatever its role,
	// by the frontend's index at the time of the decision; never less than Overlap. It is
	// nil if the frontend does not report it.
	Reusable *int `json:"reusable,omitempty"`
	// Images says how the embeddings of the prompt's images came; nil without images, and until
	// Prefill is known.
	Images *RoutedImages `json:"images,omitempty"`
	// QueueNS and PrefillNS are how long the request waited for an engine, and for its prompt to
	// be computed; 0 until Prefill is known.
	QueueNS   int64 `json:"queue_ns,omitempty"`
	PrefillNS int64 `json:"prefill_ns,omitempty"`
	// ComputeNS is how long the prefill worker computed the prompt, the wait for embeddings
	// included; 0 for a local prefill.
	ComputeNS int64 `json:"compute_ns,omitempty"`
	// KV says how KV came to the chosen worker, from a prefill worker or by a hand-over; nil if
	// none came, and until Prefill is known.
	KV *RoutedKV `json:"kv,omitempty"`
	// DecodeNS is the time from the first token that the chosen worker computed to its last one.
	// It is 0 until the worker has ended its part of the request; a worker that was lost does
	// not tell it, nor one that was told to stop, as at a stop string.
	DecodeNS   int64            `json:"decode_ns,omitempty"`
	Candidates []RouteCandidate `json:"candidates,omitempty"`
	// Weighed lists the terms of the cost that the candidates were compared by: TermLoad
	// and so on.
	Weighed []string `json:"weighed,omitempty"`
}

// RoutedKV says how the KV of a prompt moved to the worker that decodes.
type RoutedKV struct {
	NS        int64  `json:"ns"`         // in transfers, some of it while the prompt was computed
	ExposedNS int64  `json:"exposed_ns"` // from the end of the computation until all KV was there
	Bytes     int64  `json:"bytes"`
	Transport string `json:"transport,omitempty"`
}

// RoutedImages says who encoded the images of a prompt, and how long that took.
type RoutedImages struct {
	Count  int `json:"count"`
	Cached int `json:"cached"` // of these, how many nobody had to encode
	// EncodeNS is how long the prompt waited for all embeddings. MoveNS of that went to reading
	// Bytes of them over NIXL, added up over the images.
	EncodeNS int64 `json:"encode_ns"`
	MoveNS   int64 `json:"move_ns,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`
	// By names the worker that gave the embeddings of each image that the worker with the
	// prompt did not have, and Chosen says why that one did.
	By     []string `json:"encoded_by,omitempty"`
	Chosen []string `json:"chosen,omitempty"`
}

// The terms of a cost.
const (
	TermLoad     = "load"     // requests in flight
	TermTurn     = "turn"     // round robin: the candidate's place in the order
	TermUncached = "uncached" // blocks of the prompt that the worker has to compute
	TermQueue    = "queue"    // blocks of other prompts that it has to compute
	TermLater    = "later"    // blocks that others wait for who come after the request
	TermEvict    = "evict"    // blocks that are computed again because the prompt evicts them
	TermActive   = "active"   // share of the KV pool that requests use, times the prompt's blocks
	TermDraw     = "draw"     // random: a number from the hash of request and worker
	TermSession  = "session"  // what it costs to leave the worker of the session; 0 for that worker
	TermTaints   = "taints"   // by how much preferred taints change the sum of the terms before
	TermPassed   = "passed"   // above all loads if the policy does not consider the worker
)

// CostTerm is one summand of the cost of a candidate.
type CostTerm struct {
	Name  string  `json:"name"` // TermLoad and so on
	Value float64 `json:"value"`
}

// WeighsOverlap reports whether the decision compared the candidates' caches. If not, the
// overlap of the workers that were not chosen is unknown.
func (d *RouterDecision) WeighsOverlap() bool { return slices.Contains(d.Weighed, TermUncached) }

// OverlapAt returns the number of prompt blocks in a candidate's cache: those that the
// chosen worker found, once it has reported them, else what was predicted. known is false
// if the decision did not compare caches.
func (d *RouterDecision) OverlapAt(c *RouteCandidate) (blocks int, known bool) {
	if c.Worker == d.Chosen && d.Chosen != "" && d.Prefill != "" && !d.OverlapUnknown {
		return d.Overlap, true
	}
	return c.Overlap, d.WeighsOverlap()
}

// RouteCandidate is a worker that a router considered.
type RouteCandidate struct {
	Worker   string     `json:"worker"`
	ID       InstanceID `json:"id"`
	Cost     float64    `json:"cost"` // the lowest was chosen; the sum of Terms
	Terms    []CostTerm `json:"terms,omitempty"`
	Load     int        `json:"load"`               // requests in flight
	Overlap  int        `json:"overlap"`            // blocks of the prompt in its cache, as predicted
	Excluded string     `json:"excluded,omitempty"` // reason, empty if eligible
}

// FrontendStats holds the figures of one frontend for one second. Counters and histograms
// are deltas, not totals, so that observers can add up any window.
type FrontendStats struct {
	Frontend   string     `json:"frontend"` // node name
	InstanceID InstanceID `json:"instance_id"`
	Time       time.Time  `json:"time"`
	InFlight   int        `json:"in_flight"`
	Started    int        `json:"started"`
	Finished   int        `json:"finished"`
	Cancelled  int        `json:"cancelled"`
	Rejected   int        `json:"rejected"`
	Failed     int        `json:"failed"`
	Migrated   int        `json:"migrated"`
	OutTokens  int        `json:"out_tokens"`
	TTFT       Histogram  `json:"ttft"`
	ITL        Histogram  `json:"itl"`
	Queue      Histogram  `json:"queue"` // arrival to admission by an engine
	// Models tells the load of each model apart, in the order of their names; models without
	// requests are left out, and so are those that nobody declares.
	Models []ModelLoad `json:"models,omitempty"`
	// PerModel is set where Models are counted. Frontends of earlier releases do not.
	PerModel bool `json:"per_model,omitempty"`
}

// ModelLoad is the load of one model at one frontend, in one second.
type ModelLoad struct {
	Model   string `json:"model"`
	Started int    `json:"started"`
	// Served is a uniform sample of the answers that ended well, at most [MaxServed] of
	// ServedOf.
	Served   []ServedRequest `json:"served,omitempty"`
	ServedOf int             `json:"served_of,omitempty"`
}

// MaxServed bounds the answers of one [ModelLoad], MaxServedAll those of one
// [FrontendStats].
const (
	MaxServed    = 64
	MaxServedAll = 1024
)

// Of returns the load of one model; with an empty name, that of all models together.
func (f FrontendStats) Of(model string) (load ModelLoad) {
	for _, m := range f.Models {
		if model != "" && m.Model != model {
			continue
		}
		load.Started += m.Started
		load.Served = append(load.Served, m.Served...)
		load.ServedOf += m.ServedOf
	}
	load.Model = model
	return load
}

// ServedRequest is the size of one answer, and how fast it came.
type ServedRequest struct {
	Prompt int           `json:"prompt_tokens"`
	Cached int           `json:"cached_tokens,omitempty"` // of the prompt, found in a prefix cache
	Output int           `json:"output_tokens"`
	TTFT   time.Duration `json:"ttft_ns"`          // arrival to the first token
	ITL    time.Duration `json:"itl_ns,omitempty"` // mean over the answer; 0 with less than two tokens
}

// TopologyEvent reports an action of the controller, with its reason.
type TopologyEvent struct {
	Time time.Time `json:"time"`
	// Worker is the worker that the action is about; empty when it is about none.
	Worker string `json:"worker,omitempty"`
	// Action is the kind of action, one of the constants below.
	Action Action `json:"action"`
	Reason string `json:"reason"`
	// Message describes the action in one sentence.
	Message string `json:"message"`
}

// Action is a kind of change that the controller makes.
type Action string

// The actions of the controller.
const (
	ActionStart   Action = "start"   // a worker is assigned
	ActionChange  Action = "change"  // the assignment changes: model, engine, role or node
	ActionRemove  Action = "remove"  // a worker is to drain and leave
	ActionDrop    Action = "drop"    // an assignment is deleted
	ActionUnplace Action = "unplace" // no node has a place for a worker
	ActionRefuse  Action = "refuse"  // an order cannot be carried out; the running workers stay unchanged
	ActionClean   Action = "clean"   // something without an owner was deleted
	ActionLead    Action = "lead"    // a controller took over
	ActionAlarm   Action = "alarm"   // a node needs an operator's attention, or no longer does
	ActionRestore Action = "restore" // the store had lost the topology and a node wrote it back
)
