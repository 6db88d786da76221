package externaltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Fabric is what moves KV between doubles, and checks that legs match.
type Fabric struct {
	// Wait bounds how long a leg waits for the other one; set it before requests. Servers
	// wait 300 seconds.
	Wait time.Duration

	mu       sync.Mutex
	counted  int
	held     map[string]*held
	rooms    map[string]*room
	moved    int
	computed int
	wrong    []string

	// Embeddings that servers have computed for others, by name: what the others must be told, or
	// nil for those in a store.
	embeddings map[string]json.RawMessage
	// fetched and seen count what was encoded elsewhere, and what the server with the prompt encoded.
	fetched, seen int
}

// held is the KV of a prompt on a prefill server.
type held struct {
	prompt []uint32
	params string // as the server told them
}

// room is where two legs meet.
type room struct {
	mu      sync.Mutex
	legs    map[string][]uint32 // prompts by leg
	full    chan struct{}       // closed when both are there
	spoiled bool
}

// NewFabric returns one with nothing on it.
func NewFabric() *Fabric {
	return &Fabric{Wait: patience, held: map[string]*held{}, rooms: map[string]*room{}, embeddings: map[string]json.RawMessage{}}
}

func (f *Fabric) name() string { return "engine-" + strconv.Itoa(f.count()) }

// count returns another number each time.
func (f *Fabric) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counted++
	return f.counted
}

// Moved counts the prompts whose KV came to a decode server from a prefill server, and
// Computed those that a decode server was to get but computed itself.
func (f *Fabric) Moved() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// Computed counts the prompts that a decode server was to get but computed itself.
func (f *Fabric) Computed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.computed
}

// Wrong returns what did not match.
func (f *Fabric) Wrong() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.wrong)
}

func (f *Fabric) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}

func (f *Fabric) hold(key string, prompt []uint32, params string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[key] = &held{slices.Clone(prompt), params}
}

// take gives a decode server the KV under a key. It fails if the params or the prompt are not
// those of the prefill server, byte for byte.
func (f *Fabric) take(key string, prompt []uint32, params string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.held[key]
	delete(f.held, key)
	switch {
	case h == nil:
		f.wrong = append(f.wrong, "no KV under "+key)
	case h.params != params:
		f.wrong = append(f.wrong, fmt.Sprintf("params %s became %s", h.params, params))
	case !slices.Equal(h.prompt, prompt):
		f.wrong = append(f.wrong, "the prompt of the decode server is another one")
	default:
		f.moved++
		return nil
	}
	return errors.New(f.wrong[len(f.wrong)-1])
}

// recompute notes that a decode server computed a prompt that it was to get.
func (f *Fabric) recompute() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.computed++
}

// meet waits for the other leg of a room. A room serves one pair: another leg, or one that
// comes after a failure, is refused.
func (f *Fabric) meet(ctx context.Context, id, leg string, prompt []uint32) error {
	f.mu.Lock()
	r := f.rooms[id]
	if r == nil {
		r = &room{legs: map[string][]uint32{}, full: make(chan struct{})}
		f.rooms[id] = r
	}
	f.mu.Unlock()
	if err := r.enter(leg, prompt); err != nil {
		if !errors.Is(err, errLate) {
			f.note("room %s: %v", id, err)
		}
		return err
	}
	timer := time.NewTimer(f.Wait)
	defer timer.Stop()
	select {
	case <-r.full:
	case <-timer.C:
		r.spoil()
		return errors.New("timed out waiting for the other server")
	case <-ctx.Done():
		r.spoil()
		return ctx.Err()
	}
	if err := r.check(); err != nil {
		f.note("room %s: %v", id, err)
		return err
	}
	if leg == "decode" {
		f.mu.Lock()
		f.moved++
		f.mu.Unlock()
	}
	return nil
}

// errLate refuses a leg that was sent before the other one was aborted, and comes after that: that
// is nobody's mistake.
var errLate = errors.New("it was aborted before")

func (r *room) enter(leg string, prompt []uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.legs[leg]; ok {
		return errors.New("it is used again by a " + leg + " server")
	}
	if r.spoiled {
		return errLate
	}
	r.legs[leg] = slices.Clone(prompt)
	if len(r.legs) == 2 {
		close(r.full)
	}
	return nil
}

func (r *room) spoil() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoiled = true
}

func (r *room) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.legs["prefill"], r.legs["decode"]) {
		return errors.New("the legs have different prompts")
	}
	return nil
}
