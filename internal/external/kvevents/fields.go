package kvevents

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

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
	case "lora_id":
		e.numbered = something(v)
	case "lora_name":
		if v.kind == isMap { // of SGLang, where vLLM has the name of the adapter
			return d.metadata(e, v.n)
		}
		e.named(v)
	case "cache_salt":
		if something(v) {
			e.plain = 0
		}
	}
	return d.skip(v, 0)
}

// named notes the name of the adapter.
func (e *event) named(v value) {
	switch {
	case !something(v):
	case v.kind == isText && cluster.ValidAdapter(string(v.b)):
		e.adapter = string(v.b)
	default:
		e.plain = 0
	}
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
		depth := 1
		if k.kind == isArray && k.n == 1 {
			if k, err = d.next(); err != nil {
				return err
			}
			if k.kind == isText && len(k.b) > 0 && (e.key == "" || e.key == string(k.b)) {
				if e.key == "" {
					e.key, e.keyAt = string(k.b), int(min(i, math.MaxInt32))
				}
				continue
			}
			depth, e.plain = 2, int(min(i, uint64(e.plain)))
		} else if something(k) {
			e.plain = int(min(i, uint64(e.plain)))
		}
		if err := d.skip(k, depth); err != nil {
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
