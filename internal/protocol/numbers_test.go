package protocol

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// plain and fast have the same fields; the library knows no function for those of plain.
type (
	plainTokens []uint32
	plainHashes []uint64
	plainLists  struct {
		Tokens plainTokens `json:"tokens"`
		Hashes plainHashes `json:"hashes"`
		More   []plainHashes
	}
	fastLists struct {
		Tokens []uint32 `json:"tokens"`
		Hashes []uint64 `json:"hashes"`
		More   [][]uint64
	}
)

// Lists of numbers have the bytes that the library makes, and are read back from them.
func TestNumbersAreThoseOfTheLibrary(t *testing.T) {
	edges := []uint64{0, 1, 127, 128, 255, 256, math.MaxUint16, math.MaxUint16 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxUint64}
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var p plainLists
		for range r.IntN(3) * r.IntN(2000) {
			p.Tokens = append(p.Tokens, uint32(edges[r.IntN(9)])-uint32(r.IntN(2)))
			p.Hashes = append(p.Hashes, edges[r.IntN(len(edges))]-uint64(r.IntN(2)))
		}
		for range r.IntN(3) {
			p.More = append(p.More, p.Hashes[:r.IntN(1+len(p.Hashes))], nil)
		}
		want, err := Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		f := fastLists{Tokens: p.Tokens, Hashes: p.Hashes}
		for _, l := range p.More {
			f.More = append(f.More, l)
		}
		got, err := Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d tokens: other bytes than the library's", len(f.Tokens))
		}
		var back plainLists
		again := fastLists{Tokens: make([]uint32, 3, 100), Hashes: []uint64{4}} // what was there before
		if err := Unmarshal(want, &back); err != nil {
			t.Fatal(err)
		}
		if err := Unmarshal(want, &again); err != nil {
			t.Fatal(err)
		}
		if len(f.Tokens) > 0 && (!reflect.DeepEqual(again.Tokens, []uint32(back.Tokens)) || !reflect.DeepEqual(again.Hashes, []uint64(back.Hashes))) {
			t.Fatal("read back otherwise than the library does")
		}
		if len(again.More) != len(back.More) {
			t.Fatalf("%d lists, want %d", len(again.More), len(back.More))
		}
		for i := range back.More {
			if !reflect.DeepEqual(again.More[i], []uint64(back.More[i])) {
				t.Fatalf("list %d is read otherwise than the library does", i)
			}
		}
	}
}

// What is no number is refused as the library refuses it.
func TestNumbersRefuseOthers(t *testing.T) {
	for _, v := range []any{[]any{1, "two"}, "text", map[string]int{"a": 1}, []any{1.5}, []any{[]any{1}}, []any{nil, 1}, []any{-1}, 5} {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var plain plainHashes
		var fast []uint64
		want, got := Unmarshal(b, &plain), Unmarshal(b, &fast)
		if (got == nil) != (want == nil) {
			t.Errorf("%v: %v, the library says %v", v, got, want)
		}
		if got == nil && !reflect.DeepEqual(fast, []uint64(plain)) {
			t.Errorf("%v: read as %v, the library reads %v", v, fast, plain)
		}
	}
}

func BenchmarkTokens(b *testing.B) {
	tokens := make([]uint32, 10_000)
	for i := range tokens {
		tokens[i] = rand.Uint32N(100_000)
	}
	b.Run("Marshal", func(b *testing.B) {
		for b.Loop() {
			if _, err := Marshal(PreprocessedRequest{TokenIDs: tokens}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Unmarshal", func(b *testing.B) {
		msg, err := Marshal(PreprocessedRequest{TokenIDs: tokens})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			var r PreprocessedRequest
			if err := Unmarshal(msg, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkNumbers is the prompt of a request: 10,000 token ids on their way.
func BenchmarkNumbers(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]uint32, 10_000)
	for i := range ids {
		ids[i] = r.Uint32N(100_000)
	}
	text, err := Marshal(ids)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var back []uint32
		if err := Unmarshal(text, &back); err != nil {
			b.Fatal(err)
		}
	}
}
