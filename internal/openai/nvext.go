package openai

// Extension is Dynamo's extension of a request, the field nvext: which workers it must
// have, and what the answer shall tell of those that it had. Frontends of others refuse it.
type Extension struct {
	DecodeWorkerID  uint64 `json:"decode_worker_id,omitempty"`
	PrefillWorkerID uint64 `json:"prefill_worker_id,omitempty"`
	// Prefill is remote, local, or empty for what the frontend decides.
	Prefill     string   `json:"prefill,omitempty"`
	ExtraFields []string `json:"extra_fields,omitempty"`
}

// TellAll asks an extension for all that answers can tell.
func TellAll() []string { return []string{"worker_id", "timing"} }

// Ran is what an answer tells of the workers that it came from. Parts that were not asked
// for are nil.
type Ran struct {
	Workers *Workers   `json:"worker_id"`
	Timing  *RanTiming `json:"timing"`
}

// Workers are those that an answer came from.
type Workers struct {
	DecodeID  uint64 `json:"decode_worker_id"`
	Decode    string `json:"decode_worker"`
	PrefillID uint64 `json:"prefill_worker_id"` // 0 for a local prefill
	Prefill   string `json:"prefill_worker"`    // empty for a local prefill
}

// RanTiming tells how the prompt was computed, and how long that took the frontend and
// its workers.
type RanTiming struct {
	Prefill    string   `json:"prefill"`     // remote or local
	PrefillWay string   `json:"prefill_way"` // how the KV of a remote one came
	PrefillWhy string   `json:"prefill_why"` // the reason of a local one
	QueueMS    float64  `json:"queue_ms"`
	PrefillMS  float64  `json:"prefill_ms"`
	TTFTMS     *float64 `json:"ttft_ms"`
	TotalMS    float64  `json:"total_ms"`
	Moves      int      `json:"moves"` // from one decode worker to another
}
