package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
)

// MediaKind says what the content of a part of a prompt is.
type MediaKind string

// The kinds of content.
const (
	// MediaImage is an image file, which a vision tower turns into embeddings.
	MediaImage MediaKind = "image"
	// MediaEmbeddings is a file of embeddings, computed elsewhere.
	MediaEmbeddings MediaKind = "embeddings"
)

// MediaPart is content that stands in the positions [Start, End) of a prompt: Rows times the
// token Token, as a placeholder for an embedding, beginning with the first position, and
// perhaps other tokens between them.
type MediaPart struct {
	Start int    `json:"start"`
	End   int    `json:"end"`
	Rows  int    `json:"rows"`
	Token uint32 `json:"token"`
	// Grid is how the rows stand, for a model that gives them positions by it; zero for others.
	// A key stands for one grid.
	Grid Grid `json:"grid,omitzero"`
	// Key identifies the embeddings: whoever has some under it need not compute them.
	Key  blockhash.Key `json:"key"`
	Kind MediaKind     `json:"kind"`
	// Low asks for an image in less detail, where the model has a way: with fewer rows.
	Low bool `json:"low,omitempty"`
	// Source has the content.
	Source MediaSource `json:"source"`
}

// Grid counts the frames of an image, and the rows and columns of each.
type Grid struct {
	T int `json:"t"`
	H int `json:"h"`
	W int `json:"w"`
}

// MediaSource says where content is: in the memory of a frontend, until the request ends.
type MediaSource struct {
	Frontend cluster.InstanceID `json:"frontend"`
	ID       string             `json:"id"`
	Size     int64              `json:"size"` // bytes
}

// ContentID names content: its SHA-256 in hexadecimal.
func ContentID(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Span returns where the part lies in the prompt, and its key.
func (p *MediaPart) Span() blockhash.Media {
	return blockhash.Media{Start: p.Start, End: p.End, Key: p.Key}
}

// Spans returns those of all parts.
func Spans(parts []MediaPart) []blockhash.Media {
	if len(parts) == 0 {
		return nil
	}
	spans := make([]blockhash.Media, len(parts))
	for i := range parts {
		spans[i] = parts[i].Span()
	}
	return spans
}

// SameMedia reports whether two prompts have the same images in the same places.
func SameMedia(a, b []MediaPart) bool {
	return slices.EqualFunc(a, b, func(a, b MediaPart) bool { return a.Span() == b.Span() && a.Grid == b.Grid })
}

// MediaRequest asks a frontend for content by its id.
type MediaRequest struct {
	ID string `json:"id"`
}

// MediaChunk is a piece of content, in order.
type MediaChunk struct {
	Data []byte `json:"data"`
}

// EncodeRequest asks an encode worker for the embeddings of one part.
type EncodeRequest struct {
	RequestID string    `json:"request_id"`
	Tenant    string    `json:"tenant"` // as in PreprocessedRequest
	ModelSum  string    `json:"mdc_sum"`
	Part      MediaPart `json:"part"`
	// EngineID names the NIXL agent that will read the embeddings, Worker its worker.
	EngineID string    `json:"engine_id"`
	Worker   string    `json:"worker"`
	Deadline time.Time `json:"deadline"`
}

// EncodeReply says where embeddings can be read until the deadline of the request. The field
// names are those of Dynamo's encode workers.
type EncodeReply struct {
	Readable Readable `json:"nixl_readable_metadata"`
	Shape    []int    `json:"embeddings_shape"` // rows, values in a row
	DType    string   `json:"embeddings_dtype"` // DTypeFloat32
	Worker   string   `json:"worker"`           // the encode worker
	Cached   bool     `json:"cached"`           // they were computed before
}

// EncodeItem asks an encode worker whose engine is a server that others wrote to have the embeddings
// of one image, sound or video computed. The caller's leaving ends it.
type EncodeItem struct {
	RequestID string `json:"request_id"` // of this item alone
	Worker    string `json:"worker"`     // that has the prompt
	ModelSum  string `json:"mdc_sum"`
	// Version is that of the server with the prompt; empty if it does not tell.
	Version string `json:"version,omitempty"`
	// Content names the content by the first digits of a hash, for people.
	Content string          `json:"content"`
	Body    json.RawMessage `json:"body"` // for the server
}

// EncodedItem is the answer.
type EncodedItem struct {
	// Told is what the server with the prompt is to be told; null if it finds the embeddings
	// without a word.
	Told   json.RawMessage `json:"told,omitempty"`
	Worker string          `json:"worker"` // that encoded
}

// DTypeFloat32 is the type of embeddings that encode workers compute.
const DTypeFloat32 = "torch.float32"

// ReadOperation is Readable.Operation of memory that is to be read.
const ReadOperation = 1

// Readable describes memory that a peer may read once.
type Readable struct {
	Descriptors []MemoryDescriptor `json:"descriptors"`
	EngineID    string             `json:"engine_id"` // NIXL agent
	Metadata    []byte             `json:"nixl_metadata"`
	// Key is the ticket for the read, and names it in the notification that ends it.
	Key       string `json:"notification_key"`
	Operation int    `json:"operation_kind"`
}

// MemoryDescriptor is a piece of memory of an agent.
type MemoryDescriptor struct {
	Device string `json:"device"` // "cpu"
	Addr   uint64 `json:"ptr"`
	Size   uint64 `json:"size"` // bytes
}

// Encoded says how the embeddings of a prompt came to a worker; the zero value means that
// there were none.
type Encoded struct {
	Parts  int   `json:"parts,omitempty"`
	Cached int   `json:"cached,omitempty"` // of these, how many nobody had to compute
	NS     int64 `json:"ns,omitempty"`     // until all were here
	MoveNS int64 `json:"move_ns,omitempty"`
	// ExposedNS is what passed from when the last one was encoded until all were here.
	ExposedNS int64 `json:"exposed_ns,omitempty"`
	Bytes     int64 `json:"bytes,omitempty"` // that were moved here
	// By names the workers that encoded, and Chosen says why each of them did.
	By     []string `json:"by,omitempty"`
	Chosen []string `json:"chosen,omitempty"`
	// Why says why this worker encoded itself.
	Why string `json:"why,omitempty"`
}
