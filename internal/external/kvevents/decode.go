package kvevents

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
)

// The tags of events.
const (
	tagStored  = "BlockStored"
	tagRemoved = "BlockRemoved"
	tagCleared = "AllBlocksCleared"
)

// batch is one message of a server.
type batch struct {
	events []event
}

// event says that blocks were stored, removed, or all removed.
type event struct {
	tag    string
	hashes []uint64
	// Of stored blocks: the block before them, their tokens one after the other, and how many
	// one block has.
	parent    *uint64
	tokens    []uint32
	blockSize int
	// plain counts the blocks before the first one that prompts of the same tokens do not
	// find: it has a LoRA adapter, a salt, or something else in place of tokens.
	plain  int
	medium string
	remote bool // another server has it
	group  int  // of layers; -1 if the event does not say it
	spec   string
}

// Bounds of one batch.
const (
	maxBatchEvents = 1 << 16
	maxBatchItems  = 4 << 20 // tokens and hashes of all events
	maxBlockTokens = 1 << 14
)

// Fields in the order of the positional encoding; behind them are others without a meaning here.
var (
	storedFields  = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"}
	removedFields = []string{"block_hashes", "medium", "group_idx"}
)

// decoder reads one batch.
type decoder struct {
	packed
	items int // tokens and hashes so far
}

// decode reads the payload of a message, [ts, events, rank?, ...]. Events are arrays of the
// tag and its fields, of any length from the shortest up, or maps.
func decode(payload []byte) (batch, error) {
	d := decoder{packed: payload}
	var b batch
	outer, err := d.want(isArray)
	if err != nil {
		return b, err
	}
	if outer.n < 2 {
		return b, fmt.Errorf("a batch of %d values", outer.n)
	}
	if err := d.ignore(); err != nil { // the time
		return b, err
	}
	events, err := d.want(isArray)
	if err != nil {
		return b, err
	}
	if events.n > maxBatchEvents {
		return b, fmt.Errorf("a batch of %d events", events.n)
	}
	for i := range events.n {
		e, err := d.event()
		if err != nil {
			return b, fmt.Errorf("event %d: %w", i, err)
		}
		b.events = append(b.events, e)
	}
	for range outer.n - 2 {
		if err := d.ignore(); err != nil {
			return b, err
		}
	}
	if len(d.packed) > 0 {
		return b, fmt.Errorf("%d bytes follow the batch", len(d.packed))
	}
	return b, nil
}

// ignore skips one value.
func (d *decoder) ignore() error {
	v, err := d.next()
	if err != nil {
		return err
	}
	return d.skip(v, 0)
}

func (d *decoder) event() (event, error) {
	head, err := d.next()
	if err != nil {
		return event{}, err
	}
	e := event{group: -1, plain: math.MaxInt}
	switch head.kind {
	case isArray:
		err = d.positional(&e, head.n)
	case isMap:
		err = d.named(&e, head.n)
	default:
		err = fmt.Errorf("%s in place of an event", head.kind)
	}
	if err != nil {
		return event{}, err
	}
	return e, e.check()
}

// check reports what is missing.
func (e *event) check() error {
	if e.tag != tagStored {
		return nil
	}
	if e.blockSize < 1 || e.blockSize > maxBlockTokens {
		return fmt.Errorf("blocks of %d tokens", e.blockSize)
	}
	if len(e.tokens) != len(e.hashes)*e.blockSize {
		return fmt.Errorf("%d tokens for %d blocks of %d", len(e.tokens), len(e.hashes), e.blockSize)
	}
	e.plain = min(e.plain, len(e.hashes))
	return nil
}

// positional reads an event that is an array of n values.
func (d *decoder) positional(e *event, n uint64) error {
	if n == 0 {
		return errors.New("an empty event")
	}
	tag, err := d.want(isText)
	if err != nil {
		return err
	}
	e.tag = string(tag.b)
	var fields []string
	switch e.tag {
	case tagStored:
		fields = storedFields
		if n < 5 {
			return fmt.Errorf("%s with %d values", e.tag, n)
		}
	case tagRemoved:
		fields = removedFields
		if n < 2 {
			return fmt.Errorf("%s with %d values", e.tag, n)
		}
	}
	for i := range n - 1 {
		if i < uint64(len(fields)) {
			err = d.field(e, fields[i])
		} else {
			err = d.ignore()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// named reads an event that is a map of n entries, whose type may be anywhere.
func (d *decoder) named(e *event, n uint64) error {
	begin := d.packed
	for range n {
		name, err := d.want(isText)
		if err != nil {
			return err
		}
		if string(name.b) == "type" {
			tag, err := d.want(isText)
			if err != nil {
				return err
			}
			e.tag = string(tag.b)
			break
		}
		if err := d.ignore(); err != nil {
			return err
		}
	}
	if e.tag == "" {
		return errors.New("an event without a type")
	}
	d.packed = begin
	known := e.tag == tagStored || e.tag == tagRemoved
	found := 0
	for range n {
		name, err := d.want(isText)
		if err != nil {
			return err
		}
		if !known {
			err = d.ignore()
		} else {
			switch string(name.b) {
			case "block_hashes", "token_ids", "block_size":
				found++
			}
			err = d.field(e, string(name.b))
		}
		if err != nil {
			return err
		}
	}
	if e.tag == tagStored && found < 3 || e.tag == tagRemoved && found < 1 {
		return fmt.Errorf("%s without its fields", e.tag)
	}
	return nil
}

// field reads the value of a field.
func (d *decoder) field(e *event, name string) (err error) {
	switch name {
	case "block_hashes":
		e.hashes, err = list(d, e.hashes[:0], func(v value) (uint64, error) { return hashOf(v) })
	case "token_ids":
		e.tokens, err = list(d, e.tokens[:0], tokenOf)
	default:
		var v value
		if v, err = d.next(); err == nil {
			err = d.attribute(e, name, v)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// attribute reads a field that has one value, or one for each block.
func (d *decoder) attribute(e *event, name string, v value) error {
	switch name {
	case "parent_block_hash":
		e.parent = nil
		if v.kind == isNil {
			return nil
		}
		hash, err := hashOf(v)
		e.parent = &hash
		return err
	case "block_size":
		if v.kind != isUint || v.n > maxBlockTokens {
			return fmt.Errorf("%s of %d", v.kind, v.n)
		}
		e.blockSize = int(v.n)
	case "medium":
		e.medium = string(v.b)
	case "group_idx":
		if v.kind == isUint {
			e.group = int(min(v.n, math.MaxInt32))
		}
	case "kv_cache_spec_kind":
		e.spec = string(v.b)
	case "locality":
		e.remote = strings.EqualFold(string(v.b), "REMOTE")
	case "extra_keys", "block_mm_infos":
		return d.keys(e, v)
	case "lora_id", "lora_name", "cache_salt":
		if v.kind == isMap { // of SGLang, where vLLM has the name of the adapter
			return d.metadata(e, v.n)
		}
		if something(v) {
			e.plain = 0
		}
	}
	return d.skip(v, 0)
}

// keys reads what further identifies the blocks, a value for each.
func (d *decoder) keys(e *event, v value) error {
	if v.kind != isArray {
		if something(v) {
			e.plain = 0
		}
		return d.skip(v, 0)
	}
	for i := range v.n {
		k, err := d.next()
		if err != nil {
			return err
		}
		if something(k) {
			e.plain = int(min(i, uint64(e.plain)))
		}
		if err := d.skip(k, 1); err != nil {
			return err
		}
	}
	return nil
}

// metadata reads a map that may have a salt.
func (d *decoder) metadata(e *event, n uint64) error {
	for range n {
		name, err := d.want(isText)
		if err != nil {
			return err
		}
		switch string(name.b) {
		case "cache_salt", "extra_key", "extra_keys", "lora_id", "lora_name", "block_mm_infos":
			v, err := d.next()
			if err != nil {
				return err
			}
			if something(v) {
				e.plain = 0
			}
			if err := d.skip(v, 1); err != nil {
				return err
			}
		default:
			if err := d.ignore(); err != nil {
				return err
			}
		}
	}
	return nil
}

// something reports whether a value says more than that there is nothing.
func something(v value) bool { return v.kind != isNil && v.n != 0 }

// list reads an array of numbers into a slice.
func list[T any](d *decoder, into []T, item func(value) (T, error)) ([]T, error) {
	head, err := d.want(isArray)
	if err != nil {
		return nil, err
	}
	if head.n > uint64(len(d.packed)) {
		return nil, errCut // each item has a byte at least
	}
	if d.items += int(head.n); d.items > maxBatchItems {
		return nil, fmt.Errorf("more than %d tokens and hashes in a batch", maxBatchItems)
	}
	if cap(into) < int(head.n) {
		into = make([]T, 0, head.n)
	}
	for range head.n {
		v, err := d.next()
		if err != nil {
			return nil, err
		}
		one, err := item(v)
		if err != nil {
			return nil, err
		}
		into = append(into, one)
	}
	return into, nil
}

// hashOf reduces the hash of a block to 64 bits: servers have integers of either sign, or the
// bytes of a longer hash, of which the last eight are the integer.
func hashOf(v value) (uint64, error) {
	switch v.kind {
	case isUint, isInt:
		return v.n, nil
	case isBytes:
		if len(v.b) > 0 {
			var n uint64
			for _, b := range v.b[max(0, len(v.b)-8):] {
				n = n<<8 | uint64(b)
			}
			return n, nil
		}
	case isText:
		if len(v.b) > 0 {
			return textHash(v.b), nil
		}
	}
	return 0, fmt.Errorf("%s of length %d is no hash", v.kind, len(v.b))
}

// textHash makes an integer of a hash that is a text.
func textHash(text []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(text) // it cannot fail
	return h.Sum64()
}

func tokenOf(v value) (uint32, error) {
	if v.kind != isUint || v.n > math.MaxUint32 {
		return 0, fmt.Errorf("%s is no token", v.kind)
	}
	return uint32(v.n), nil
}
