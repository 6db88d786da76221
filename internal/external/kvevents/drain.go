package kvevents

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
)

// maxDrained bounds the bytes of one answer.
const maxDrained = 32 << 20

// queued is an event of TensorRT-LLM.
type queued struct {
	ID         uint64          `json:"event_id"`
	Data       json.RawMessage `json:"data"`
	WindowSize int             `json:"window_size"` // of the layers' attention, in tokens
	Rank       int             `json:"attention_dp_rank"`
}

type queuedData struct {
	Type    string        `json:"type"`
	Parent  *queuedHash   `json:"parent_hash"`
	Blocks  []queuedBlock `json:"blocks"`
	Removed []queuedHash  `json:"block_hashes"`
	Updated queuedHash    `json:"block_hash"`
	// CacheLevel is where an updated block is: 0 is the memory of the device.
	CacheLevel *struct {
		Now int `json:"new_value"`
	} `json:"cache_level"`
}

type queuedBlock struct {
	Hash   queuedHash `json:"block_hash"`
	Tokens []struct {
		ID    uint32 `json:"token_id"`
		Extra uint64 `json:"token_extra_id"`
	} `json:"tokens"`
	Level  int               `json:"cache_level"`
	LoRA   *int              `json:"lora_id"`
	Images []json.RawMessage `json:"mm_keys"`
}

// queuedHash is the hash of a block: an integer of either sign, or a text.
type queuedHash uint64

// UnmarshalJSON implements [json.Unmarshaler].
func (h *queuedHash) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		*h = queuedHash(textHash([]byte(text)))
		return nil
	}
	if n, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		*h = queuedHash(n)
		return nil
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	*h = queuedHash(n)
	return err
}

// queue is the state of a queue that is drained.
type queue struct {
	*Follower
	ranks  map[int]*source
	window int // the largest so far: of layers that attend to all tokens
}

// drain polls the queue. It waits longer while there is nothing, or it cannot be reached.
func (f *Follower) drain(ctx context.Context) {
	q := &queue{Follower: f, ranks: map[int]*source{}}
	defer func() {
		for _, s := range q.ranks {
			f.leave(s)
		}
	}()
	wait, failed := f.times.pollMin, f.times.retryMin
	for {
		n, err := q.poll(ctx)
		pause := wait
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause, failed = failed, min(2*failed, f.times.retryMax)
			f.mu.Lock()
			f.complain("KV events of a server cannot be drained; trying again", slog.Any("error", err))
			f.mu.Unlock()
		case n > 0:
			wait, failed = f.times.pollMin, f.times.retryMin
			pause = wait
		default:
			wait, failed = min(2*wait, f.times.pollMax), f.times.retryMin
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// poll takes the events that wait, and returns how many they were.
func (q *queue) poll(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, q.times.pollTimeout)
	defer cancel()
	body, err := q.cfg.Drain(ctx)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	limited := &io.LimitedReader{R: body, N: maxDrained}
	n, err := q.read(json.NewDecoder(limited))
	if err != nil {
		if limited.N <= 0 {
			err = fmt.Errorf("more than %d bytes", maxDrained)
		}
		// What was drained is lost.
		q.mu.Lock()
		defer q.mu.Unlock()
		q.figures.Undecodable++
		for _, s := range q.ranks {
			q.forget(s)
		}
		return n, fmt.Errorf("its answer makes no sense: %w", err)
	}
	return n, nil
}

func (q *queue) read(d *json.Decoder) (n int, err error) {
	begin, err := d.Token()
	if err != nil || begin == nil { // null
		return 0, err
	}
	if begin != json.Delim('[') {
		return 0, fmt.Errorf("%v in place of a list", begin)
	}
	for ; d.More(); n++ {
		if n == 0 {
			q.count(func(f *Figures) { f.Batches++ })
		}
		var e queued
		if err := d.Decode(&e); err != nil {
			return n, err
		}
		var data queuedData
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return n, fmt.Errorf("event %d: %w", e.ID, err)
		}
		if err := q.event(&e, &data); err != nil {
			return n, err
		}
	}
	_, err = d.Token()
	return n, err
}

// event applies one event.
func (q *queue) event(e *queued, data *queuedData) error {
	s := q.ranks[e.Rank]
	if s == nil {
		if e.Rank < 0 || len(q.ranks) == maxRanks {
			return fmt.Errorf("event %d is of rank %d", e.ID, e.Rank)
		}
		s = q.add(e.Rank)
		q.ranks[e.Rank] = s
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.figures.Events++
	q.ordered(s, e.ID)
	switch {
	case e.WindowSize > q.window: // what came before was of other layers
		q.window = e.WindowSize
		for _, s := range q.ranks {
			q.blocks.clear(s.rank)
		}
	case e.WindowSize < q.window:
		q.figures.Ignored += uint64(len(data.Blocks))
		return nil
	}
	switch data.Type {
	case "created":
		q.blocks.clear(s.rank)
	case "stored":
		q.stored(s, data)
	case "removed":
		hashes := make([]uint64, len(data.Removed))
		for i, h := range data.Removed {
			hashes[i] = uint64(h)
		}
		q.blocks.remove(s.rank, hashes)
	case "updated":
		if data.CacheLevel != nil {
			q.blocks.move(s.rank, uint64(data.Updated), data.CacheLevel.Now == 0)
		}
	default:
		q.unknown(data.Type)
	}
	q.blocks.out.flush(reasonRemoved)
	return nil
}

// ordered forgets a rank whose events are not the next ones. They are gone for ever.
func (q *queue) ordered(s *source, id uint64) {
	switch {
	case !s.known || id == s.next:
	case id > s.next:
		q.figures.Gaps++
		q.complain("KV events of a server were lost; its blocks are forgotten (who else drains them?)", slog.Int("rank", s.number))
		q.forget(s)
	default:
		q.figures.Restarts++
		q.forget(s)
	}
	s.known, s.next = true, id+1
}

// stored adds the blocks of an event, each behind the one before. The last may be partial.
func (q *queue) stored(s *source, data *queuedData) {
	var parent *uint64
	if data.Parent != nil {
		p := uint64(*data.Parent)
		parent = &p
	}
	for i, b := range data.Blocks {
		plain := (b.LoRA == nil || *b.LoRA == 0) && len(b.Images) == 0
		tokens := make([]uint32, len(b.Tokens))
		for j, t := range b.Tokens {
			tokens[j] = t.ID
			plain = plain && t.Extra == 0
		}
		if !plain || len(tokens) == 0 || len(tokens) > maxBlockTokens {
			q.figures.Ignored += uint64(len(data.Blocks) - i)
			return
		}
		hash := uint64(b.Hash)
		if n := s.rank.nodes[hash]; n == nil || n.refs == 0 { // there is one block with a hash
			q.blocks.store(s.rank, q.cfg.HashSeed, parent, []uint64{hash}, tokens, len(tokens))
		}
		q.blocks.move(s.rank, hash, b.Level == 0)
		parent = &hash
	}
}
