package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Version is that of the JSON form. Fields are only ever added within one.
const Version = 1

// maxBytes bounds the JSON form of a profile.
const maxBytes = 16 << 20

// Profile is the performance of one kind of worker: a model on so many devices.
type Profile struct {
	Version int    `json:"version"`
	Name    string `json:"name,omitempty"` // of model and device, for people
	// Devices is how many devices one worker takes, at least 1.
	Devices   int       `json:"devices"`
	Limits    Limits    `json:"limits"`
	Step      Costs     `json:"step"`
	KV        KV        `json:"kv"`
	Overheads Overheads `json:"overheads"`
	// Measured are tables of whole requests; predictions prefer them to the costs of steps.
	Measured Measured `json:"measured,omitzero"`
	// Fitted says how well Step describes the steps that it was found from; nil if it was not.
	Fitted *Quality `json:"fitted,omitempty"`
}

// Limits are those of one worker.
type Limits struct {
	KVBlocks       int `json:"kv_blocks"`
	BlockSize      int `json:"block_size"` // tokens
	MaxSeqs        int `json:"max_num_seqs"`
	MaxBatchTokens int `json:"max_num_batched_tokens"` // of one step
	MaxContext     int `json:"max_model_len"`          // prompt and output, in tokens
	// ITLTarget bounds, in seconds, a step that decodes and prefills; 0 means the engine's
	// default.
	ITLTarget float64 `json:"itl_target_s,omitempty"`
}

// KVTokens returns how many tokens the KV pool holds.
func (l Limits) KVTokens() int { return l.KVBlocks * l.BlockSize }

// KV says how KV moves between workers.
type KV struct {
	BytesPerToken float64 `json:"bytes_per_token"`
	Bandwidth     float64 `json:"bandwidth_bytes_per_s"` // of the link of one worker, in each direction
	Latency       float64 `json:"latency_s"`             // from the last byte to the decode worker's next step
}

// TransferRate returns the tokens per second that a link carries; 0 if unknown.
func (k KV) TransferRate() float64 {
	if k.BytesPerToken <= 0 {
		return 0
	}
	return k.Bandwidth / k.BytesPerToken
}

// Overheads are times beside the steps, in seconds.
type Overheads struct {
	// Frontend is from the arrival of a request until it is routed: parsing and tokenizing.
	Frontend float64 `json:"frontend_s"`
	// Delivery is from the end of the step that gives a token until the client has it.
	Delivery float64 `json:"delivery_s"`
	// Startup is how long a new worker takes until it is ready; Flip is that of a worker that
	// changes its role, once it is drained.
	Startup float64 `json:"startup_s"`
	Flip    float64 `json:"flip_s"`
}

// Seconds returns s seconds, to the nanosecond.
func Seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// Read reads the JSON form of a profile and validates it. Unknown fields are errors.
func Read(r io.Reader) (*Profile, error) {
	limited := &io.LimitedReader{R: r, N: maxBytes + 1}
	d := json.NewDecoder(limited)
	d.DisallowUnknownFields()
	var p Profile
	err := d.Decode(&p)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("text follows the JSON object")
		}
	}
	switch {
	case limited.N <= 0:
		return nil, fmt.Errorf("read the profile: it has more than %d bytes", maxBytes)
	case err != nil:
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// Write writes the JSON form.
func (p *Profile) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(p); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

// Bounds of what a profile may say. They keep sums of predictions finite.
const (
	maxCount   = 1 << 30
	maxSeconds = 1e6
	maxRate    = 1e15
)

// Validate returns an error that names the first wrong field.
func (p *Profile) Validate() error {
	var wrong error
	fail := func(field, format string, args ...any) {
		if wrong == nil {
			wrong = fmt.Errorf("profile: %s: "+format, append([]any{field}, args...)...)
		}
	}
	if p.Version != Version {
		fail("version", "%d is not %d", p.Version, Version)
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"devices", p.Devices}, {"limits.kv_blocks", p.Limits.KVBlocks}, {"limits.block_size", p.Limits.BlockSize}, {"limits.max_num_seqs", p.Limits.MaxSeqs},
		{"limits.max_num_batched_tokens", p.Limits.MaxBatchTokens}, {"limits.max_model_len", p.Limits.MaxContext},
	} {
		if f.value < 1 || f.value > maxCount {
			fail(f.name, "%d is not between 1 and %d", f.value, maxCount)
		}
	}
	if wrong == nil && p.Limits.KVBlocks > maxCount/p.Limits.BlockSize {
		fail("limits.kv_blocks", "%d blocks of %d tokens are more than %d tokens", p.Limits.KVBlocks, p.Limits.BlockSize, maxCount)
	}
	for _, f := range []struct {
		name  string
		value float64
		most  float64
	}{
		{"limits.itl_target_s", p.Limits.ITLTarget, maxSeconds},
		{"step.step_s", p.Step.Step, maxSeconds}, {"step.decode_s", p.Step.Decode, maxSeconds}, {"step.decode_context_s", p.Step.DecodeContext, maxSeconds},
		{"step.token_s", p.Step.Token, maxSeconds}, {"step.chunk_context_s", p.Step.ChunkContext, maxSeconds},
		{"kv.bytes_per_token", p.KV.BytesPerToken, maxRate}, {"kv.bandwidth_bytes_per_s", p.KV.Bandwidth, maxRate}, {"kv.latency_s", p.KV.Latency, maxSeconds},
		{"overheads.frontend_s", p.Overheads.Frontend, maxSeconds}, {"overheads.delivery_s", p.Overheads.Delivery, maxSeconds},
		{"overheads.startup_s", p.Overheads.Startup, maxSeconds}, {"overheads.flip_s", p.Overheads.Flip, maxSeconds},
	} {
		if !(f.value >= 0 && f.value <= f.most) {
			fail(f.name, "%v is not between 0 and %v", f.value, f.most)
		}
	}
	if wrong == nil && p.Step == (Costs{}) && p.Measured.Prefill == nil && p.Measured.Decode == nil {
		fail("step", "a step costs nothing, and nothing is measured")
	}
	if p.KV.BytesPerToken > 0 && p.KV.Bandwidth == 0 {
		fail("kv.bandwidth_bytes_per_s", "KV of %v bytes a token never arrives", p.KV.BytesPerToken)
	}
	if err := p.Measured.validate(); err != nil {
		fail("measured", "%w", err)
	}
	return wrong
}
