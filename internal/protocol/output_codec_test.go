package protocol

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// The short way gives the bytes of the library, and reads what the library reads.
func TestPlainOutput(t *testing.T) {
	long := func(n int) (ids []uint32) {
		for i := range n {
			ids = append(ids, uint32(i*i*i))
		}
		return ids
	}
	for _, ids := range [][]uint32{nil, {}, {0}, {127}, {128}, {255}, {256}, {65_535}, {65_536}, {1<<32 - 1}, long(15), long(16), long(255), long(65_535), long(65_536)} {
		for _, finish := range []FinishReason{"", FinishStop, FinishLength, FinishCancelled, FinishError, FinishMoved, "another", FinishReason(strings.Repeat("x", 31)), FinishReason(strings.Repeat("x", 32))} {
			o := EngineOutput{TokenIDs: ids, Finish: finish}
			want, err := marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range []any{o, &o} {
				if got, err := Marshal(v); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d tokens, %q, as %T: %x, %v, want %x", len(ids), finish, v, got, err, want)
				}
			}
			sameDecoding(t, want)
			for cut := range min(len(want), 40) {
				sameDecoding(t, want[:cut])
			}
			sameDecoding(t, append(want, 0))
		}
	}
}

// What has more than tokens is left to the library.
func TestRichOutput(t *testing.T) {
	for i := range reflect.TypeFor[EngineOutput]().NumField() {
		o := EngineOutput{TokenIDs: []uint32{7}}
		f := reflect.ValueOf(&o).Elem().Field(i)
		switch f.Kind() {
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.String:
			f.SetString("text")
		case reflect.Int64:
			f.SetInt(7)
		case reflect.Slice:
		default:
			t.Fatalf("a field of kind %s", f.Kind())
		}
		want, err := marshal(&o)
		if got, err2 := Marshal(&o); err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%+v: %x, %v, want %x, %v", o, got, err2, want, err)
		}
		sameDecoding(t, want)
	}
	for _, v := range []any{(*EngineOutput)(nil), 7} {
		want, err := marshal(v)
		if got, err2 := Marshal(v); (err == nil) != (err2 == nil) || !bytes.Equal(got, want) {
			t.Errorf("%v: %x, %v, want %x, %v", v, got, err2, want, err)
		}
	}
}

// sameDecoding decodes b both ways, over a value that has something already.
func sameDecoding(t testing.TB, b []byte) {
	t.Helper()
	for _, old := range []EngineOutput{{}, {TokenIDs: []uint32{1, 2}, Finish: FinishError, Error: "old", Timing: &Timing{Worker: "w"}}} {
		got, want := old, old
		got.TokenIDs, want.TokenIDs = append([]uint32(nil), old.TokenIDs...), append([]uint32(nil), old.TokenIDs...)
		err, wantErr := Unmarshal(b, &got), unmarshal(b, &want)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%x:\n got %+v, %v\nwant %+v, %v", b, got, err, want, wantErr)
		}
	}
}

func FuzzPlainOutput(f *testing.F) {
	for _, o := range []EngineOutput{{}, {TokenIDs: []uint32{1, 200, 70_000}}, {Finish: FinishLength}, {TokenIDs: []uint32{1}, Finish: FinishStop, Usage: &Usage{PromptTokens: 3}}} {
		b, err := marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x82\xa9token_ids\x91\x01\xa9token_ids\x91\x02"))
	f.Add([]byte("\x82\xadfinish_reason\xa4stop\xadfinish_reason\xa0"))
	f.Add([]byte("\x81\xa9token_ids\x91\xff"))
	f.Add([]byte("\x81\xa9token_ids\xdd\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) { sameDecoding(t, b) })
}

// BenchmarkOutput encodes and decodes an output of one token.
func BenchmarkOutput(b *testing.B) {
	o := EngineOutput{TokenIDs: []uint32{70_000}}
	b.ReportAllocs()
	for b.Loop() {
		raw, err := Marshal(&o)
		if err != nil {
			b.Fatal(err)
		}
		var got EngineOutput
		if err := Unmarshal(raw, &got); err != nil {
			b.Fatal(err)
		}
	}
}
