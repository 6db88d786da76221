package kvevents

import (
	"errors"
	"fmt"
	"math"
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
	// adapter is the LoRA adapter that computed them; numbered is set if the event has its
	// number, which says nothing without the name.
	adapter  string
	numbered bool
	// plain counts the blocks before the first one that prompts of the same tokens and adapter
	// do not find: it has a salt, or something else in place of tokens.
	plain int
	// key is the only further key of the block at keyAt, and of those behind it up to plain, if
	// it is a text: the name of the adapter, or a salt.
	key    string
	keyAt  int
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
	if e.numbered && e.adapter == "" {
		e.plain = 0
	}
	if e.key != e.adapter && e.key != "" {
		e.plain = min(e.plain, e.keyAt)
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
