package openai

import "encoding/json"

// Extension is the request field nvext, Dynamo's extension. It chooses workers and asks
// the answer to report on them. Other frontends refuse it.
type Extension struct {
	DecodeWorkerID  uint64 `json:"decode_worker_id,omitempty"`
	PrefillWorkerID uint64 `json:"prefill_worker_id,omitempty"`
	// Prefill is "remote" or "local"; empty leaves the choice to the frontend.
	Prefill     string   `json:"prefill,omitempty"`
	ExtraFields []string `json:"extra_fields,omitempty"`
	// Query asks where the request would run, and runs nothing; see [Client.Query].
	Query bool `json:"query_instance_id,omitempty"`
}

// TellAll lists all reports that an answer can contain.
func TellAll() []string { return []string{"worker_id", "timing"} }

// Ran is an answer's report on its workers. Parts that were not requested are nil.
type Ran struct {
	Workers *Workers   `json:"worker_id"`
	Timing  *RanTiming `json:"timing"`
	// Route is the decision about a query, in the form of dynctl explain route, and Images are
	// those of its prompt. A frontend of another make has neither.
	Route  json.RawMessage `json:"route,omitempty"`
	Images []QueriedImage  `json:"images,omitempty"`
}

// QueriedImage names an image of a query.
type QueriedImage struct {
	Content string `json:"content"` // SHA-256 of the file, in hexadecimal
	Key     string `json:"key"`     // of its embeddings, in hexadecimal
	Rows    int    `json:"rows"`
}

// Workers names the workers that computed an answer.
type Workers struct {
	DecodeID  uint64 `json:"decode_worker_id"`
	Decode    string `json:"decode_worker"`
	PrefillID uint64 `json:"prefill_worker_id"` // 0 for a local prefill
	Prefill   string `json:"prefill_worker"`    // empty for a local prefill
}

// RanTiming says how the prompt was computed, and how long the frontend and its workers
// took.
type RanTiming struct {
	Prefill    string   `json:"prefill"`     // remote or local
	PrefillWay string   `json:"prefill_way"` // how the KV of a remote prefill was transferred
	PrefillWhy string   `json:"prefill_why"` // the reason for a local prefill
	QueueMS    float64  `json:"queue_ms"`
	PrefillMS  float64  `json:"prefill_ms"`
	TTFTMS     *float64 `json:"ttft_ms"`
	TotalMS    float64  `json:"total_ms"`
	// DecodeMS is the time from the first token to the last one at the workers; 0 if none told it.
	DecodeMS float64 `json:"decode_ms,omitempty"`
	Moves    int     `json:"moves"` // from one decode worker to another
	// KV is nil if no KV came from a prefill worker.
	KV *KVTiming `json:"kv_transfer,omitempty"`
	// Images is nil for a prompt of text.
	Images *ImageTiming `json:"images,omitempty"`
}

// KVTiming says how the KV of a prompt came to the decode worker.
type KVTiming struct {
	MoveMS    float64 `json:"move_ms"`    // in transfers, some of it while the prompt was computed
	ExposedMS float64 `json:"exposed_ms"` // from the end of the computation until all was there
	Bytes     int64   `json:"bytes"`
	Transport string  `json:"transport,omitempty"`
}

// ImageTiming says how the embeddings of a prompt's images came to the worker that computed it.
type ImageTiming struct {
	Count     int      `json:"count"`
	Cached    int      `json:"cached"` // of these, how many nobody had to encode
	EncodeMS  float64  `json:"encode_ms"`
	MoveMS    float64  `json:"move_ms"`    // reading them from encode workers, added up
	ExposedMS float64  `json:"exposed_ms"` // from when the last one was encoded until all were there
	Bytes     int64    `json:"bytes"`
	EncodedBy []string `json:"encoded_by,omitempty"`
	Why       string   `json:"why,omitempty"` // why that worker encoded itself
}
