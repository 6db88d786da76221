package kvevents

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func pack(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// named turns a positional event into a map.
func named(e []any) map[string]any {
	m := map[string]any{"type": e[0]}
	fields := slices.Concat(storedFields, []string{"kv_cache_spec_sliding_window"})
	if e[0] == "BlockRemoved" {
		fields = removedFields
	}
	for i, v := range e[1:] {
		m[fields[i]] = v
	}
	return m
}

// same compares events; an empty list is none.
func same(a, b event) bool {
	for _, e := range []*event{&a, &b} {
		e.hashes, e.tokens = append([]uint64{}, e.hashes...), append([]uint32{}, e.tokens...)
	}
	return reflect.DeepEqual(a, b)
}

// Both encodings say the same, whatever is left out at the end of arrays.
func TestDecode(t *testing.T) {
	parent := uint64(9)
	long := append(bytes.Repeat([]byte{0xee}, 24), 1, 2, 3, 4, 5, 6, 7, 8)
	plain := event{tag: "BlockStored", hashes: []uint64{1, 2}, tokens: []uint32{1, 2, 3, 4}, blockSize: 2, plain: 2, group: -1}
	with := func(change func(*event)) event {
		e := plain
		change(&e)
		return e
	}
	for name, tc := range map[string]struct {
		event []any
		want  event
	}{
		"shortest":          {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2}, plain},
		"parent":            {[]any{"BlockStored", []uint64{1, 2}, 9, []int{1, 2, 3, 4}, 2, nil}, with(func(e *event) { e.parent = &parent })},
		"medium":            {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, "CPU"}, with(func(e *event) { e.medium = "CPU" })},
		"adapter":           {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, 1, "GPU"}, with(func(e *event) { e.medium, e.numbered, e.plain = "GPU", true, 0 })},
		"adapter by name":   {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, 1, "GPU", "sql"}, with(func(e *event) { e.medium, e.numbered, e.adapter = "GPU", true, "sql" })},
		"odd adapter":       {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, "GPU", "s\nql"}, with(func(e *event) { e.medium, e.plain = "GPU", 0 })},
		"adapter's key":     {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, "sql", []any{[]any{"sql"}, []any{"sql"}}}, with(func(e *event) { e.adapter, e.key = "sql", "sql" })},
		"adapter, salted":   {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, "sql", []any{[]any{"sql", "salt"}, []any{"sql"}}}, with(func(e *event) { e.adapter, e.key, e.keyAt, e.plain = "sql", "sql", 1, 0 })},
		"adapter, image":    {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, "sql", []any{[]any{"sql"}, []any{"sql", []any{"image", 3}}}}, with(func(e *event) { e.adapter, e.key, e.plain = "sql", "sql", 1 })},
		"another's key":     {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, "sql", []any{[]any{"sql"}, []any{"xml"}}}, with(func(e *event) { e.adapter, e.key, e.plain = "sql", "sql", 1 })},
		"no adapter":        {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, 0, "GPU", ""}, with(func(e *event) { e.medium = "GPU" })},
		"SGLang, salted":    {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, "GPU", map[string]any{"x": []int{1}, "cache_salt": "s"}}, with(func(e *event) { e.medium, e.plain = "GPU", 0 })},
		"SGLang, metadata":  {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, map[string]any{"x": "y", "cache_salt": nil}}, plain},
		"keys of a block":   {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, nil, []any{nil, []any{"image", 3}}}, with(func(e *event) { e.plain = 1 })},
		"keys of the first": {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, nil, []any{[]any{"salt"}, []any{"x"}}}, with(func(e *event) { e.key, e.plain = "salt", 0 })},
		"no keys":           {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, nil, []any{nil, []any{}}}, plain},
		"one key for all":   {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, nil, "salt"}, with(func(e *event) { e.plain = 0 })},
		"group":             {[]any{"BlockStored", []uint64{1, 2}, nil, []int{1, 2, 3, 4}, 2, nil, nil, nil, nil, 1, "sliding_window", 1024}, with(func(e *event) { e.group, e.spec = 1, "sliding_window" })},
		"no blocks":         {[]any{"BlockStored", []uint64{}, nil, []int{}, 16}, event{tag: "BlockStored", blockSize: 16, group: -1}},
		"kinds of hashes":   {[]any{"BlockRemoved", []any{uint64(math.MaxUint64), int64(-2), long, []byte{7}, 5}}, event{tag: "BlockRemoved", hashes: []uint64{math.MaxUint64, math.MaxUint64 - 1, 0x0102030405060708, 7, 5}, plain: math.MaxInt, group: -1}},
		"hash as text":      {[]any{"BlockRemoved", []any{"abc"}}, event{tag: "BlockRemoved", hashes: []uint64{textHash([]byte("abc"))}, plain: math.MaxInt, group: -1}},
		"removed":           {[]any{"BlockRemoved", []uint64{1}, "GPU", 2}, event{tag: "BlockRemoved", hashes: []uint64{1}, medium: "GPU", plain: math.MaxInt, group: 2}},
		"cleared":           {[]any{"AllBlocksCleared"}, event{tag: "AllBlocksCleared", plain: math.MaxInt, group: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			for form, e := range map[string]any{"array": tc.event, "map": named(tc.event)} {
				b, err := decode(pack(t, []any{1.5, []any{e}}))
				if err != nil || len(b.events) != 1 || !same(b.events[0], tc.want) {
					t.Errorf("%s: got %+v, %v, want %+v", form, b.events, err, tc.want)
				}
			}
		})
	}
}

// Integers of every size, batches with and without a rank, and fields that mean nothing here.
func TestDecodeAnySize(t *testing.T) {
	for _, n := range []any{int8(5), int16(300), int32(70000), int64(1 << 40), uint8(200), uint16(60000), uint32(1 << 31), uint64(1 << 63)} {
		for _, outer := range []any{[]any{1, []any{[]any{"BlockRemoved", []any{n}}}}, []any{nil, []any{[]any{"BlockRemoved", []any{n}}}, 3, "later", map[string]int{"x": 1}}} {
			b, err := decode(pack(t, outer))
			want := reflect.ValueOf(n).Convert(reflect.TypeFor[uint64]()).Uint()
			if err != nil || b.events[0].hashes[0] != want {
				t.Errorf("%T: %v, %v", n, b.events, err)
			}
		}
	}
	e := named([]any{"BlockStored", []uint64{1}, nil, []int{1}, 1})
	e["cache_salt"], e["block_mm_infos"], e["locality"], e["ownership"], e["is_eagle"] = nil, []any{nil}, "REMOTE", map[string]any{"a": []any{1.5, float32(2), true}}, false
	b, err := decode(pack(t, []any{1, []any{e}}))
	if err != nil || !b.events[0].remote || b.events[0].plain != 1 {
		t.Errorf("got %+v, %v", b.events, err)
	}
	e["block_mm_infos"] = []any{map[string]any{"hash": "x"}}
	if b, err = decode(pack(t, []any{1, []any{e}})); err != nil || b.events[0].plain != 0 {
		t.Errorf("got %+v, %v", b.events, err)
	}
}

func TestUndecodableBatches(t *testing.T) {
	deep := any(1)
	for range 2 * deepest {
		deep = []any{deep}
	}
	one := func(e ...any) any { return []any{1, []any{e}} }
	for says, v := range map[string]any{
		"a map in place of an array":                          map[string]any{},
		"a batch of 1 values":                                 []any{1},
		"an integer in place of an array":                     []any{1, 2},
		"a text in place of an event":                         []any{1, []any{"BlockStored"}},
		"an empty event":                                      []any{1, []any{[]any{}}},
		"an event without a type":                             []any{1, []any{map[string]any{"block_hashes": []int{1}}}},
		"an integer in place of a text":                       one(1, 2),
		"BlockStored with 4 values":                           one("BlockStored", []int{1}, nil, []int{1}),
		"BlockRemoved with 1 values":                          one("BlockRemoved"),
		"BlockStored without its fields":                      []any{1, []any{map[string]any{"type": "BlockStored", "block_hashes": []int{}, "block_size": 1}}},
		"BlockRemoved without its fields":                     []any{1, []any{map[string]any{"type": "BlockRemoved"}}},
		"3 tokens for 1 blocks of 2":                          one("BlockStored", []int{1}, nil, []int{1, 2, 3}, 2),
		"blocks of 0 tokens":                                  one("BlockStored", []int{}, nil, []int{}, 0),
		"block_size: an integer of 100000":                    one("BlockStored", []int{}, nil, []int{}, 100000),
		"block_size: a text of 1":                             one("BlockStored", []int{}, nil, []int{}, "x"),
		"token_ids: a negative integer is no token":           one("BlockStored", []int{1}, nil, []int{-1}, 1),
		"token_ids: an integer is no token":                   one("BlockStored", []int{1}, nil, []int{1 << 40}, 1),
		"block_hashes: nil of length 0 is no hash":            one("BlockRemoved", []any{nil}),
		"block_hashes: bytes of length 0 is no hash":          one("BlockRemoved", []any{[]byte{}}),
		"block_hashes: a text in place of an array":           one("BlockRemoved", "x"),
		"parent_block_hash: a float of length 0":              one("BlockStored", []int{1}, 1.5, []int{1}, 1),
		"values nest deeper":                                  one("New", deep),
		"lora_name: an integer in place of a text":            one("BlockStored", []int{1}, nil, []int{1}, 1, nil, nil, map[int]int{1: 2}),
		fmt.Sprintf("a batch of %d events", maxBatchEvents+1): []any{1, make([]any, maxBatchEvents+1)},
	} {
		if b, err := decode(pack(t, v)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %+v, %v, want %q", b, err, says)
		}
	}
	good := encode(t, block(1, 2, 3), gone(4))
	for n := range good {
		if _, err := decode(good[:n]); err == nil {
			t.Errorf("cut at %d: no error", n)
		}
	}
	for says, raw := range map[string][]byte{
		"1 bytes follow":     append(slices.Clone(good), 0),
		"begins with 0xc1":   {0x92, 0xc1},
		"the message is cut": {0x92, 0, 0xdd, 0, 0, 0xff, 0xff},
		"in a batch":         slices.Concat([]byte{0x92, 0, 0x91, 0x92, 0xac}, []byte(tagRemoved), []byte{0xdd, 0, 0x40, 0, 1}, make([]byte, 0x400001)),
	} {
		if _, err := decode(raw); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("% x: %v, want %q", raw[:min(20, len(raw))], err, says)
		}
	}
}

// Only blocks in the memory of the device, of layers that attend to everything, count. Their
// removal does not say so.
func TestWhatCounts(t *testing.T) {
	stored := func(hash int, rest ...any) []any {
		return append([]any{"BlockStored", []int{hash}, nil, slices.Repeat([]int{hash}, 16), 16}, rest...)
	}
	f, err := New(Config{Endpoint: "tcp://*:0", BlockSize: 16, HashSeed: seed, Sink: newIndex(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.add(0)
	for i, step := range []struct {
		event   []any
		blocks  int
		ignored uint64
	}{
		{stored(1, nil, "GPU"), 1, 0},
		{stored(1, nil, "CPU"), 1, 1}, // on both
		{[]any{"BlockRemoved", []int{1}, "CPU"}, 1, 1},
		{[]any{"BlockRemoved", []int{1}, "gpu"}, 0, 1},
		{stored(2, nil, "GPU", nil, nil, 0, "sliding_window", 128), 0, 2},
		{stored(2, nil, "GPU", nil, nil, 1, "full_attention"), 1, 2},
		{[]any{"BlockRemoved", []int{2}, "GPU", 0}, 1, 2},
		{[]any{"BlockRemoved", []int{2}, "GPU", 1}, 0, 2},
		{stored(3, nil, "GPU", nil, nil, 2), 0, 3},
		{stored(4, nil, "GPU", nil, nil, 3, "mla_attention"), 1, 3},
		{stored(5, nil, nil, nil, nil, 3), 2, 3}, // of a group that is known
		{stored(5), 2, 4},                        // of one that does not count
		{stored(6, 7), 2, 5},
		{stored(5, nil, nil, nil, nil, 3), 2, 5}, // twice
		{[]any{"BlockRemoved", []int{5}, nil, 3}, 2, 5},
		{[]any{"BlockRemoved", []int{5, 4}, nil, 3}, 0, 5},
		{stored(8, 1, "GPU", "adapter", nil, 3), 1, 5},
		{stored(8, nil, "GPU", nil, nil, 3), 1, 5}, // one hash for both: the first one counts
		{[]any{"BlockRemoved", []int{8}, nil, 3}, 0, 5},
	} {
		f.take(s, uint64(i), encode(t, step.event))
		if n := f.Figures(); n.Blocks != step.blocks || n.Ignored != step.ignored || n.Undecodable != 0 {
			t.Fatalf("step %d: %+v, want %+v", i, n, step)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, block(1, 0, 2), gone(1), []any{"AllBlocksCleared"}, []any{"New", 1}))
	f.Add(encode(f, named([]any{"BlockStored", []any{[]byte("12345678901"), -1}, "x", []int{1, 2}, 1, 3, "GPU", map[string]any{"cache_salt": "x"}, []any{nil, 1}, 1, "full_attention", 2})))
	f.Add(encode(f, []any{"BlockStored", []int{1, 2}, nil, []int{1, 2, 3, 4, 5, 6, 7, 8}, 4, 1, "GPU", "sql", []any{[]any{"sql"}, []any{"sql", "salt"}}}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		sink := newIndex(t)
		sink.anyAdapter = true
		fo, err := New(Config{Drain: drained(nil).take, BlockSize: 4, HashSeed: seed, Sink: sink, MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer fo.Close()
		s := fo.add(0)
		fo.take(s, 1, payload)
		fo.take(s, 2, payload)
		fo.blocks.check(t, s.rank)
		if len(sink.blocks) != fo.Figures().Blocks {
			t.Errorf("the sink has %d blocks of %d", len(sink.blocks), fo.Figures().Blocks)
		}
	})
}
