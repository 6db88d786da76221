package output

import (
	"bytes"
	"slices"
	"strconv"
)

// identifiers are the keys of integers that use all 64 bits: ids of leases, epochs and hashes.
// JavaScript and jq round what exceeds 2^53.
var identifiers = []string{"instance_id", "worker_id", "lease_id", "id", "epoch", "kv_epoch", "parent_hash", "block_hash", "tokens_hash", "hash_seed", "removed"}

// withHex adds to each identifier of a compact JSON document a member KEY_hex with the same
// value as text, as "0x2b7f…"; to a list of them, a list.
func withHex(doc []byte) []byte {
	out := make([]byte, 0, len(doc)+len(doc)/8)
	for i := 0; i < len(doc); {
		if doc[i] != '"' {
			out = append(out, doc[i])
			i++
			continue
		}
		end := endOfString(doc, i)
		key := doc[i+1 : end-1]
		out = append(out, doc[i:end]...)
		i = end
		if i >= len(doc) || doc[i] != ':' || !slices.Contains(identifiers, string(key)) {
			continue
		}
		end = i + 1
		list := doc[end] == '['
		for end < len(doc) && (doc[end] >= '0' && doc[end] <= '9' || list && bytes.IndexByte([]byte("[,"), doc[end]) >= 0) {
			end++
		}
		if list && end < len(doc) && doc[end] == ']' {
			end++
		}
		hex, ok := hexOf(doc[i+1:end], list)
		if !ok || end < len(doc) && bytes.IndexByte([]byte(",}]"), doc[end]) < 0 { // 1.5 is none
			continue
		}
		out = append(out, doc[i:end]...)
		out = append(append(append(out, ',', '"'), key...), `_hex":`...)
		out = append(out, hex...)
		i = end
	}
	return out
}

// endOfString is the index after a string that begins at i.
func endOfString(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(doc)
}

// hexOf is a number, or a list of them, as text in JSON.
func hexOf(value []byte, list bool) ([]byte, bool) {
	if !list {
		n, err := strconv.ParseUint(string(value), 10, 64)
		return strconv.AppendQuote(nil, "0x"+strconv.FormatUint(n, 16)), err == nil
	}
	if len(value) < 3 || value[len(value)-1] != ']' {
		return nil, false
	}
	out := []byte{'['}
	for i, part := range bytes.Split(value[1:len(value)-1], []byte{','}) {
		if i > 0 {
			out = append(out, ',')
		}
		hex, ok := hexOf(part, false)
		if !ok {
			return nil, false
		}
		out = append(out, hex...)
	}
	return append(out, ']'), true
}
