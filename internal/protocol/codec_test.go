package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/dynctl/dynctl/internal/cluster"
)

// messages are all types that travel as msgpack.
var messages = []any{
	PreprocessedRequest{}, EngineOutput{}, RemotePrefillRequest{}, PrefillNotice{}, JoinRoom{},
	HandoverRequest{}, HandoverRoom{}, HandoverGrant{}, HandoverCommitted{},
	MediaRequest{}, MediaChunk{}, EncodeRequest{}, EncodeReply{}, EncodeItem{}, EncodedItem{},
	ModelFilesRequest{}, ModelFile{}, ClearedKV{}, KVEventsRequest{}, KVEventsPage{}, LogRequest{}, LogChunk{}, DecisionsRequest{}, KVIndexRequest{}, LoadRequest{}, DepartedRequest{}, Departed{}, ActivityRequest{},
	cluster.WorkerStatus{}, cluster.KVEvent{}, cluster.KVPosition{}, cluster.KVIndex{}, cluster.RecordedLoad{}, cluster.RouterDecision{}, cluster.FrontendStats{}, cluster.TopologyEvent{}, cluster.Activity{}, cluster.NodeStats{},
}

// random fills a value; zero says how many percent of the fields stay zero.
func random(r *rand.Rand, v reflect.Value, zero int) {
	if r.IntN(100) < zero {
		return
	}
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(r.Int64N(1<<34), r.Int64N(1e9)).UTC()
		return
	case *cluster.Histogram:
		for range r.IntN(20) {
			x.Observe(time.Duration(r.Int64N(int64(time.Minute))))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			random(r, v.Field(i), zero)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		random(r, v.Elem(), zero)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+r.IntN(40), 50))
		for i := range v.Len() {
			random(r, v.Index(i), zero)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + r.IntN(5) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			random(r, key, zero)
			random(r, value, zero)
			v.SetMapIndex(key, value)
		}
	case reflect.Array:
		for i := range v.Len() {
			random(r, v.Index(i), zero)
		}
	case reflect.String:
		v.SetString(strings.Repeat("aé\x00\xff世", r.IntN(60)) + fmt.Sprint(r.Uint64()))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n := int64(r.Uint64() >> r.IntN(64))
		if r.IntN(2) == 0 {
			n = -n
		}
		if v.OverflowInt(n) {
			n = int64(int32(n))
		}
		v.SetInt(n)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		n := r.Uint64() >> r.IntN(64)
		if v.OverflowUint(n) {
			n &= 1<<v.Type().Bits() - 1
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(r.NormFloat64())))
	default:
		panic("no random " + v.Kind().String())
	}
}

// equal compares two values; times by instant.
func equal(a, b reflect.Value) bool {
	if x, ok := a.Interface().(time.Time); ok {
		return x.Equal(b.Interface().(time.Time))
	}
	switch a.Kind() {
	case reflect.Struct:
		if h, ok := a.Interface().(cluster.Histogram); ok {
			return h == b.Interface().(cluster.Histogram)
		}
		for i := range a.NumField() {
			if !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		if h, ok := a.Interface().(*cluster.Histogram); ok { // one of nothing is left out, and comes back as nil
			o, _ := b.Interface().(*cluster.Histogram)
			empty := func(h *cluster.Histogram) bool { return h == nil || h.IsZero() }
			return empty(h) == empty(o) && (empty(h) || *h == *o)
		}
		return a.IsNil() == b.IsNil() && (a.IsNil() || equal(a.Elem(), b.Elem()))
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for _, key := range a.MapKeys() {
			if v := b.MapIndex(key); !v.IsValid() || !equal(a.MapIndex(key), v) {
				return false
			}
		}
		return true
	}
	return a.Interface() == b.Interface()
}

func TestRoundTrips(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, m := range messages {
		typ := reflect.TypeOf(m)
		t.Run(typ.String(), func(t *testing.T) {
			for i := range 60 {
				want := reflect.New(typ)
				random(r, want.Elem(), []int{0, 30, 80, 100}[i%4])
				b, err := Marshal(want.Interface())
				if err != nil {
					t.Fatal(err)
				}
				got := reflect.New(typ)
				if err := Unmarshal(b, got.Interface()); err != nil {
					t.Fatalf("%+v: %v", want, err)
				}
				if !equal(got.Elem(), want.Elem()) {
					t.Fatalf("got %+v\nwant %+v\nfrom %q", got, want, b)
				}
			}
		})
	}
}

func TestZeroValuesAreLeftOut(t *testing.T) {
	for _, m := range messages {
		b, err := Marshal(m)
		if err != nil || !bytes.Equal(b, []byte{0x80}) {
			t.Errorf("zero %T: %q %v, want an empty map", m, b, err)
		}
		v := reflect.New(reflect.TypeOf(m))
		if err := Unmarshal(b, v.Interface()); err != nil || !v.Elem().IsZero() {
			t.Errorf("zero %T comes back as %+v %v", m, v.Elem(), err)
		}
	}
}

// A pointer to zero is not nil: "no parent" and "parent hash 0" differ.
func TestPointersToZero(t *testing.T) {
	zero := uint64(0)
	b, err := Marshal(cluster.KVEvent{ParentHash: &zero})
	if err != nil {
		t.Fatal(err)
	}
	var got cluster.KVEvent
	if err := Unmarshal(b, &got); err != nil || got.ParentHash == nil || *got.ParentHash != 0 {
		t.Errorf("parent hash %v %v", got.ParentHash, err)
	}
	b, _ = Marshal(EngineOutput{Usage: &Usage{}})
	var out EngineOutput
	if err := Unmarshal(b, &out); err != nil || out.Usage == nil || out.Timing != nil {
		t.Errorf("usage %v, timing %v, %v", out.Usage, out.Timing, err)
	}
}

func TestHistogramsTravel(t *testing.T) {
	var f cluster.FrontendStats
	for i := range 100 {
		f.TTFT.Observe(time.Duration(i) * time.Millisecond)
	}
	b, err := Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got cluster.FrontendStats
	if err := Unmarshal(b, &got); err != nil || got.TTFT != f.TTFT || !got.ITL.IsZero() {
		t.Errorf("ttft %v, want %v: %v", got.TTFT, f.TTFT, err)
	}
}

func TestIntegersAreExact(t *testing.T) {
	for _, n := range []uint64{0, 1, 1<<53 - 1, 1 << 53, 1<<53 + 1, 7587888373457125123, math.MaxInt64, 1 << 63, math.MaxUint64} {
		e := cluster.KVEvent{WorkerID: cluster.InstanceID(n), EventID: n, Removed: []uint64{n}, Stored: []cluster.KVStoredBlock{{BlockHash: n, TokensHash: ^n}}}
		b, err := Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got cluster.KVEvent
		if err := Unmarshal(b, &got); err != nil || uint64(got.WorkerID) != n || got.EventID != n || got.Removed[0] != n || got.Stored[0] != e.Stored[0] {
			t.Errorf("%d: got %+v %v", n, got, err)
		}
	}
	for _, n := range []int64{math.MinInt64, -1<<53 - 1, -1, math.MaxInt64} {
		b, _ := Marshal(PrefillNotice{Bytes: n})
		var got PrefillNotice
		if err := Unmarshal(b, &got); err != nil || got.Bytes != n {
			t.Errorf("%d: got %d %v", n, got.Bytes, err)
		}
	}
	at := time.Date(2026, 7, 1, 12, 30, 45, 123456789, time.FixedZone("x", 3600))
	b, _ := Marshal(RemotePrefillRequest{Deadline: at})
	var got RemotePrefillRequest
	if err := Unmarshal(b, &got); err != nil || !got.Deadline.Equal(at) {
		t.Errorf("%s: got %s %v", at, got.Deadline, err)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	b, err := msgpack.Marshal(map[string]any{
		"request_id": "r1", "from_the_future": map[string]any{"a": []any{1, "x", nil, 2.5, map[string]any{}}}, "token_ids": []uint32{1, 2},
		"stop_conditions": map[string]any{"max_tokens": 5, "new": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got PreprocessedRequest
	if err := Unmarshal(b, &got); err != nil || got.RequestID != "r1" || got.Stop.MaxTokens != 5 || len(got.TokenIDs) != 2 {
		t.Errorf("got %+v %v", got, err)
	}
}

func TestGarbageIsRefused(t *testing.T) {
	valid, err := Marshal(PreprocessedRequest{RequestID: "r1", TokenIDs: []uint32{1, 2, 70000}})
	if err != nil {
		t.Fatal(err)
	}
	var v PreprocessedRequest
	for i := range valid {
		if err := Unmarshal(valid[:i], &v); !errors.Is(err, ErrTruncated) {
			t.Errorf("first %d bytes of %d: %v, want ErrTruncated", i, len(valid), err)
		}
	}
	deep := append([]byte{0x81, 0xa1, 'x'}, bytes.Repeat([]byte{0x91}, 1<<20)...)
	for _, tc := range []struct {
		name string
		b    []byte
		want error
	}{
		{"two values", append(bytes.Clone(valid), 0xc0), ErrTrailing},
		{"nothing", nil, ErrTruncated},
		{"code that does not exist", []byte{0xc1}, ErrCode},
		{"only opening arrays", append(deep, 0xc0), ErrNesting},
		{"array of 4 billion", []byte{0xdd, 0xff, 0xff, 0xff, 0xff, 1}, ErrTruncated},
		{"map of 4 billion", []byte{0xdf, 0xff, 0xff, 0xff, 0xff, 1}, ErrTruncated},
		{"binary of 4 GiB", []byte{0xc6, 0xff, 0xff, 0xff, 0xff, 1}, ErrTruncated},
		{"extension of 4 GiB", []byte{0xc9, 0xff, 0xff, 0xff, 0xff, 1}, ErrTruncated},
		{"wrong type", []byte{0xa1, 'x'}, nil},
		{"string for a number", append([]byte{0x81, 0xa9}, "generated\xa1x"...), nil},
		{"nil for a time", []byte("\x81\xabreceived_at\xc0"), ErrValue},
	} {
		err := Unmarshal(tc.b, &v)
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), "PreprocessedRequest") {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	if err := Unmarshal(append(bytes.Repeat([]byte{0x91}, maxNesting), 0xc0), new([]any)); errors.Is(err, ErrNesting) {
		t.Errorf("%d levels: %v", maxNesting, err)
	}
	if _, err := Marshal(func() {}); err == nil {
		t.Error("a function is encoded")
	}
}

// Encoders are shared: nothing of one message may show in another.
func TestConcurrentUse(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				want := EngineOutput{TokenIDs: []uint32{uint32(g), uint32(i)}, Error: strings.Repeat("x", i)}
				b, err := Marshal(want)
				var got EngineOutput
				if err != nil || Unmarshal(b, &got) != nil || !equal(reflect.ValueOf(got), reflect.ValueOf(want)) {
					t.Errorf("got %+v %v, want %+v", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzUnmarshal(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, m := range messages {
		v := reflect.New(reflect.TypeOf(m))
		random(r, v.Elem(), 20)
		b, err := Marshal(v.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x81, 0xa1, 'x', 0x91, 0x91, 0x91, 0xc0})
	f.Add([]byte("\x81\xa4time\xc0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range messages {
			v := reflect.New(reflect.TypeOf(m))
			if Unmarshal(b, v.Interface()) != nil {
				continue
			}
			out, err := Marshal(v.Interface())
			if err != nil {
				t.Fatalf("%+v was decoded and cannot be encoded: %v", v, err)
			}
			again := reflect.New(reflect.TypeOf(m))
			if err := Unmarshal(out, again.Interface()); err != nil {
				t.Fatalf("%q was encoded and cannot be decoded: %v", out, err)
			}
		}
		// The check and the library agree about what is one value.
		if wellFormed(b) == nil {
			rest := bytes.NewReader(b)
			if err := msgpack.NewDecoder(rest).Skip(); err != nil || rest.Len() > 0 {
				t.Errorf("%x is taken for one value: %v, %d bytes are left", b, err, rest.Len())
			}
		}
	})
}

func BenchmarkUnmarshal(b *testing.B) {
	for name, m := range map[string]any{
		"token":  EngineOutput{TokenIDs: []uint32{12345}},
		"prompt": PreprocessedRequest{RequestID: "r", TokenIDs: make([]uint32, 8192)},
	} {
		b.Run(name, func(b *testing.B) {
			enc, err := Marshal(m)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(enc)))
			b.ReportAllocs()
			for b.Loop() {
				v := reflect.New(reflect.TypeOf(m)).Interface()
				if err := Unmarshal(enc, v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
