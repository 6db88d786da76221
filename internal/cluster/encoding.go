package cluster

import "time"

// MaxEncodings bounds the images in one event.
const MaxEncodings = 64

// Encodings are the images whose embeddings a worker gave in an interval.
type Encodings struct {
	WorkerID InstanceID `json:"worker_id"`
	Worker   string     `json:"worker"`
	Images   []Encoding `json:"images"`            // the first [MaxEncodings] of the interval
	Omitted  int        `json:"omitted,omitempty"` // how many more there were
}

// Encoding is one image whose embeddings a worker computed, or gave from its cache to another
// worker.
type Encoding struct {
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id"`
	For       string    `json:"for"`     // the worker that has the prompt
	Content   string    `json:"content"` // the first digits of the SHA-256 of the file
	Rows      int       `json:"rows"`    // embeddings
	TookNS    int64     `json:"took_ns"` // until they were there
	Cached    bool      `json:"cached"`  // nobody computed them for this request
}
