package cluster

import (
	"slices"
	"time"
)

// Event topics; the full subject is namespace.{ns}.component.{component}.{topic}.
const (
	TopicKVEvents        = "kv-events"        // [KVEvent], by every worker
	TopicWorkerStatus    = "worker-status"    // [WorkerStatus], by every worker, each second
	TopicRouterDecisions = "router-decisions" // [RouterDecision], by frontends
	TopicFrontendStats   = "frontend-stats"   // [FrontendStats], by frontends, each second
	TopicTopology        = "topology"         // [TopologyEvent], by the controller
	TopicNodeStats       = "node-stats"       // [NodeStats], by nodes with GPUs, each second
)

// KVEventKind says what happened to blocks of a worker's prefix cache.
type KVEventKind string

// Kinds of KV events.
const (
	KVStored  KVEventKind = "stored"
	KVRemoved KVEventKind = "removed"
	KVCleared KVEventKind = "cleared"
)

// KVEvent tells indexes what a worker's prefix cache gained or lost. Event ids
// of one worker incarnation increase by one, so that a reader sees gaps.
type KVEvent struct {
	WorkerID InstanceID  `json:"worker_id"`
	Worker   string      `json:"worker"`
	EventID  uint64      `json:"event_id"`
	Kind     KVEventKind `json:"kind"`
	// ParentHash is the sequence hash before the first stored block, if any.
	ParentHash *uint64         `json:"parent_hash,omitempty"`
	Stored     []KVStoredBlock `json:"stored,omitempty"`
	// Removed holds the block (sequence) hashes that left the cache.
	Removed []uint64 `json:"removed,omitempty"`
	// Count is the number of blocks, also for cleared.
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

// RouterDecision records one choice of a worker and what it weighed.
type RouterDecision struct {
	RequestID  string    `json:"request_id"`
	Time       time.Time `json:"time"`
	Model      string    `json:"model"`
	Phase      Role      `json:"phase"` // which role was chosen for
	Policy     string    `json:"policy"`
	Chosen     string    `json:"chosen"` // worker name; empty if none
	PromptToks int       `json:"prompt_tokens"`
	Blocks     int       `json:"blocks"` // full blocks of the prompt
	DecidedNS  int64     `json:"decided_ns"`
	// Prefill says where the prompt was computed, once known: a prefill worker's
	// name or "local"; PrefillWhy gives the reason for local, PrefillWay how the KV
	// came from elsewhere: queue, direct, pull or background.
	Prefill    string `json:"prefill,omitempty"`
	PrefillWhy string `json:"prefill_why,omitempty"`
	PrefillWay string `json:"prefill_way,omitempty"`
	// Overlap is how many blocks were found in the chosen worker's cache: observed
	// there, after the decision, and known once Prefill is.
	Overlap    int              `json:"overlap"`
	Candidates []RouteCandidate `json:"candidates,omitempty"`
	// Weighed are the terms that decided between the candidates: TermLoad and so on.
	Weighed []string `json:"weighed,omitempty"`
}

// Terms of a cost.
const (
	TermLoad    = "load"    // requests in flight
	TermTurn    = "turn"    // whose turn it is
	TermOverlap = "overlap" // blocks of the prompt in the worker's cache
)

// WeighsOverlap reports whether the caches of the candidates were looked at. If not,
// nobody knows what those have that were not chosen.
func (d *RouterDecision) WeighsOverlap() bool { return slices.Contains(d.Weighed, TermOverlap) }

// OverlapAt returns how many blocks of the prompt a candidate has in its cache; false if
// that is not known.
func (d *RouterDecision) OverlapAt(c *RouteCandidate) (blocks int, known bool) {
	blocks, known = c.Overlap, d.WeighsOverlap()
	if c.Worker == d.Chosen && d.Chosen != "" && d.Prefill != "" {
		return max(blocks, d.Overlap), true
	}
	return blocks, known
}

// RouteCandidate is one worker a router looked at.
type RouteCandidate struct {
	Worker   string     `json:"worker"`
	ID       InstanceID `json:"id"`
	Cost     float64    `json:"cost"`
	Load     int        `json:"load"`               // requests in flight
	Overlap  int        `json:"overlap"`            // as weighed; 0 where overlap is not among the terms
	Excluded string     `json:"excluded,omitempty"` // reason, empty if eligible
}

// FrontendStats is what one frontend saw in one second: deltas, not totals, for
// the histograms and counters, so that observers can add up any window.
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
}

// TopologyEvent says what the controller did, and why.
type TopologyEvent struct {
	Time time.Time `json:"time"`
	// Worker is the one that it is about; empty for what is about none.
	Worker string `json:"worker,omitempty"`
	// Action is what was done; see the constants.
	Action Action `json:"action"`
	Reason string `json:"reason"`
	// Message is all of it in a sentence.
	Message string `json:"message"`
}

// Action is a kind of change that the controller makes.
type Action string

// What the controller does.
const (
	ActionStart   Action = "start"   // a worker is assigned
	ActionChange  Action = "change"  // a worker is to be another: model, engine, role, node
	ActionRemove  Action = "remove"  // a worker is to drain and go
	ActionDrop    Action = "drop"    // an assignment is deleted
	ActionUnplace Action = "unplace" // a worker has no node
	ActionRefuse  Action = "refuse"  // an order cannot be carried out: what serves goes on as it was
	ActionClean   Action = "clean"   // something that nobody owns was deleted
	ActionLead    Action = "lead"    // a controller took over
	ActionAlarm   Action = "alarm"   // a node has to be seen to, or not any more
	ActionRestore Action = "restore" // the store had lost the topology, and a node wrote it again
)
