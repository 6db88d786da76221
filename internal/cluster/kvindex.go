package cluster

import "time"

// KVIndex is what the prefix index of one frontend knows of the workers' KV caches.
type KVIndex struct {
	Frontend string `json:"frontend"` // node name
	// At is when the frontend answered, by its own clock.
	At time.Time `json:"at,omitzero"`
	// Approximate is set when the index is not fed by KV events but by what was routed.
	Approximate bool   `json:"approximate,omitempty"`
	Blocks      int    `json:"blocks"` // that somebody holds
	Held        int    `json:"held"`   // pairs of a block and a worker
	Bytes       int64  `json:"bytes"`
	Forgotten   uint64 `json:"forgotten_total"` // pairs, for want of memory

	Workers []KVIndexWorker `json:"workers"`

	// ReplicaSync says what the frontend knows of the requests of other frontends; nil if it
	// does not report it.
	ReplicaSync *ReplicaSync `json:"replica_sync,omitempty"`

	// PromptTokens and PromptBlocks describe the text that was asked about, if any.
	PromptTokens int `json:"prompt_tokens,omitempty"`
	PromptBlocks int `json:"prompt_blocks,omitempty"` // full blocks
	BlockSize    int `json:"block_size,omitempty"`    // tokens of one, of the model
}

// KVIndexWorker is what an index knows of one worker.
type KVIndexWorker struct {
	Worker     string     `json:"worker"`
	InstanceID InstanceID `json:"instance_id"`
	// Device, Host and Disk count the blocks that it holds, by tier.
	Device int `json:"device"`
	Host   int `json:"host"`
	Disk   int `json:"disk"`
	// Epoch and Next are its KVPosition as far as events were applied.
	Epoch uint64 `json:"epoch"`
	Next  uint64 `json:"next"`
	// OutOfDateSince is when events are known to be missing; zero if none are.
	OutOfDateSince time.Time `json:"out_of_date_since,omitzero"`
	GapsTotal      uint64    `json:"gaps_total"`    // events that did not come
	AnswersTotal   uint64    `json:"answers_total"` // answers of the worker that repaired gaps
	DumpsTotal     uint64    `json:"dumps_total"`   // answers with all blocks
	ResetsTotal    uint64    `json:"resets_total"`  // times that all blocks were forgotten

	Accuracy KVAccuracy `json:"accuracy"` // since the frontend met the worker
	// Recent is the accuracy over the last [KVRecent]; nil if the frontend does not report it.
	Recent *KVAccuracy `json:"recent,omitempty"`

	// Overlap counts the leading blocks that it holds of the text that was asked about.
	Overlap int `json:"overlap,omitempty"`
}

// KVAccuracy compares the blocks that an index predicted where requests were sent with
// those that the workers found in their caches.
type KVAccuracy struct {
	Requests  uint64 `json:"requests"`
	Predicted uint64 `json:"predicted_blocks"`
	Found     uint64 `json:"found_blocks"`
	// False counts predicted blocks that were not found. A few are evicted between the
	// decision and the look.
	False uint64 `json:"false_blocks"`
}

// KVRecent is the period of the recent accuracy.
const KVRecent = time.Minute

// Plus returns the sum of two accuracies.
func (a KVAccuracy) Plus(o KVAccuracy) KVAccuracy {
	return KVAccuracy{a.Requests + o.Requests, a.Predicted + o.Predicted, a.Found + o.Found, a.False + o.False}
}

// FalseShare returns the share of predicted blocks that were not found; known is false
// if none were predicted.
func (a KVAccuracy) FalseShare() (share float64, known bool) {
	if a.Predicted == 0 {
		return 0, false
	}
	return float64(a.False) / float64(a.Predicted), true
}
