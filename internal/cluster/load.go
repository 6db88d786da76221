package cluster

import "time"

// Bounds of what a frontend remembers of its load.
const (
	// LoadKept is how long.
	LoadKept = time.Hour
	// LoadBlock is the tokens of a prompt that one hash stands for.
	LoadBlock = 512
)

// RecordedRequest is one answer that a frontend has given, without a word of it.
type RecordedRequest struct {
	At     time.Time `json:"at"` // arrival, by the frontend's clock
	Model  string    `json:"model"`
	Prompt int       `json:"prompt_tokens"`
	Output int       `json:"output_tokens"` // 0 if there was no answer
	// Blocks has a hash for each LoadBlock tokens of the prompt, the last of which may be fewer. A hash
	// covers all tokens before its block, too: prompts that begin alike have the same first ones.
	Blocks []uint64 `json:"blocks,omitempty"`
}

// RecordedLoad is a part of what a frontend remembers. Each answer has at least one.
type RecordedLoad struct {
	Frontend string `json:"frontend"` // node name
	// Off is set where frontend.record_load is false.
	Off bool `json:"off,omitempty"`
	// Since is from when on all requests that have ended are remembered.
	Since    time.Time         `json:"since"`
	Requests []RecordedRequest `json:"requests,omitempty"`
}
