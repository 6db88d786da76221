package protocol

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// All messages get the bytes of the library, and none is left to it.
func TestStructsAsTheLibrary(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for _, m := range messages {
		typ := reflect.TypeOf(m)
		if layoutOf(typ) == nil {
			t.Errorf("%s is left to the library", typ)
		}
		for i := range 200 {
			v := reflect.New(typ)
			random(r, v.Elem(), []int{0, 30, 80, 95}[i%4])
			sameBytes(t, v.Interface())
			sameBytes(t, v.Elem().Interface())
		}
	}
}

func sameBytes(t *testing.T, v any) {
	t.Helper()
	want, wantErr := byLibrary(v)
	got, err := marshal(v)
	if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
		t.Fatalf("%+v:\n got %x, %v\nwant %x, %v", v, got, err, want, wantErr)
	}
}

type (
	odd struct {
		Below  float64 `json:"below"`
		F32    float32
		Small  int8   `json:"small,omitempty"`
		Byte   uint8  `json:"byte"`
		Bytes  []byte `json:"bytes"`
		hidden int
		Left   int `json:"-"`
		Time   *time.Time
		Inner  struct{ A, B int }
		Many   []struct{ A *int }
		Array  [2]int
		None   [0]int
		Map    map[string]int
		Ptr    *struct{ N int64 }
		Text   cluster.Role
		Lists  [][]uint32
	}
	embedding struct{ odd }
	anything  struct{ V any }
	opaque    struct{ n int }
	sealed    struct{ O opaque }
	itself    struct {
		N    int
		Next *itself
		All  []itself
	}
)

// What messages may have one day is as the library has it, or left to it.
func TestOddStructs(t *testing.T) {
	zero, now := time.Time{}, time.Now()
	one := 1
	for _, v := range []any{
		odd{}, &odd{}, (*odd)(nil), odd{Below: math.Copysign(0, -1), F32: float32(math.Copysign(0, -1))}, odd{Below: math.NaN(), F32: -1.5},
		odd{Small: -3, Byte: 200, Bytes: []byte{}, hidden: 1, Left: 2}, odd{Bytes: []byte("x"), Time: &zero}, odd{Time: &now},
		odd{Inner: struct{ A, B int }{B: -70_000}}, odd{Many: []struct{ A *int }{{}, {&one}}}, odd{Many: []struct{ A *int }{}}, odd{Array: [2]int{0, 1}},
		odd{Map: map[string]int{"a": 1}}, odd{Map: map[string]int{}}, odd{Ptr: &struct{ N int64 }{}}, odd{Ptr: &struct{ N int64 }{1 << 40}},
		odd{Text: "x", Lists: [][]uint32{nil, {1}}},
		embedding{odd{Byte: 1}}, anything{}, anything{3}, sealed{opaque{1}}, itself{N: 1, Next: &itself{N: 2}, All: []itself{{}, {N: 3}}},
		7, "x", []odd{{Byte: 1}}, map[string]odd{"a": {Byte: 1}},
	} {
		sameBytes(t, v)
	}
}

// BenchmarkMarshal encodes the decision among 8 workers.
func BenchmarkMarshal(b *testing.B) {
	d := cluster.RouterDecision{RequestID: "r", Time: time.Now(), Model: "m", Candidates: make([]cluster.RouteCandidate, 8)}
	for i := range d.Candidates {
		d.Candidates[i].Worker = "worker"
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Marshal(&d); err != nil {
			b.Fatal(err)
		}
	}
}
