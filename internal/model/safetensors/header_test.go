package safetensors

import (
	"errors"
	"strings"
	"testing"
)

func TestParseHeaderRefuses(t *testing.T) {
	const ok = `"dtype":"F32","shape":[2],"data_offsets":[0,8]`
	tests := []struct {
		name    string
		header  string
		dataLen int64
		want    string // part of the message
	}{
		{"empty header", ``, 0, "does not start with {"},
		{"first byte is a space", ` {}`, 0, "does not start with {"},
		{"array", `[]`, 0, "does not start with {"},
		{"null", `null`, 0, "does not start with {"},
		{"string", `"{}"`, 0, "does not start with {"},
		{"not JSON", `{"a":}`, 0, "not JSON"},
		{"unquoted key", `{a:1}`, 0, "not JSON"},
		{"trailing comma", `{"a":{` + ok + `},}`, 8, "not JSON"},
		{"two values", `{}{}`, 0, "not JSON"},
		{"not UTF-8", "{\"a\xff\":{" + ok + "}}", 8, "not UTF-8"},
		{"UTF-16 surrogate bytes", "{\"a\xed\xa0\x80\":{" + ok + "}}", 8, "not UTF-8"},
		{"lone high surrogate", `{"a\ud800":{` + ok + `}}`, 8, "lone surrogate"},
		{"lone low surrogate", `{"a\udC00b":{` + ok + `}}`, 8, "lone surrogate"},
		{"high surrogate before a letter", `{"\ud83dx":{` + ok + `}}`, 8, "lone surrogate"},
		{"two high surrogates", `{"\ud83d\ud83d":{` + ok + `}}`, 8, "lone surrogate"},
		{"entry is null", `{"a":null}`, 0, "want {"},
		{"entry is an array", `{"a":[]}`, 0, "want {"},
		{"entry is a string", `{"a":"b"}`, 0, "want {"},

		{"unknown dtype", `{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}`, 8, `unknown dtype "F33"`},
		{"dtype in lower case", `{"a":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}}`, 8, `unknown dtype "f32"`},
		{"dtype is a number", `{"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}}`, 8, "dtype: "},
		{"dtype is null", `{"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}}`, 8, "dtype: "},
		{"field name in capitals", `{"a":{"DTYPE":"F32","shape":[2],"data_offsets":[0,8]}}`, 8, `unknown field "DTYPE"`},
		{"unknown field", `{"a":{` + ok + `,"strides":[1]}}`, 8, `unknown field "strides"`},
		{"missing dtype", `{"a":{"shape":[2],"data_offsets":[0,8]}}`, 8, `missing field "dtype"`},
		{"missing shape", `{"a":{"dtype":"F32","data_offsets":[0,8]}}`, 8, `missing field "shape"`},
		{"missing offsets", `{"a":{"dtype":"F32","shape":[2]}}`, 8, `missing field "data_offsets"`},
		{"empty entry", `{"a":{}}`, 0, `missing field "dtype"`},

		{"negative dimension", `{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8, "plain whole number"},
		{"minus zero", `{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}`, 0, "plain whole number"},
		{"fractional dimension", `{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8, "plain whole number"},
		{"exponent", `{"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}}`, 8, "plain whole number"},
		{"dimension over 2^63", `{"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}}`, 8, "does not fit"},
		{"dimension is a string", `{"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}}`, 8, "want a number"},
		{"dimension is null", `{"a":{"dtype":"F32","shape":[null],"data_offsets":[0,8]}}`, 8, "want a number"},
		{"shape is null", `{"a":{"dtype":"F32","shape":null,"data_offsets":[0,8]}}`, 8, "want ["},
		{"shape is a number", `{"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}}`, 8, "want ["},
		{"nested shape", `{"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}}`, 8, "want a number"},
		{"negative offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}`, 8, "plain whole number"},
		{"offset over 2^63", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}}`, 8, "does not fit"},
		{"fractional offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8.0]}}`, 8, "plain whole number"},
		{"offset with an exponent", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8e0]}}`, 8, "plain whole number"},
		{"offset is a string", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,"8"]}}`, 8, "want a number"},
		{"one offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}}`, 8, "has 1 numbers"},
		{"three offsets", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8, "has 3 numbers"},
		{"offsets are null", `{"a":{"dtype":"F32","shape":[2],"data_offsets":null}}`, 8, "want ["},

		{"shape product overflows", `{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}`, 8, "overflows"},
		{"product times dtype overflows", `{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,8]}}`, 8, "overflows"},
		{"overflow before a zero", `{"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}`, 0, "overflows"},
		{"six bits that are no whole bytes", `{"a":{"dtype":"F6_E2M3","shape":[3],"data_offsets":[0,3]}}`, 3, "18 bits are not whole bytes"},
		{"half a byte", `{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2, "not whole bytes"},
		{"begin after end", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8, "begin 8 after end 0"},
		{"span too long", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}}`, 12, "span 12 bytes"},
		{"span too short", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4, "span 4 bytes"},

		{"first offset not 0", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12, "belong to no tensor"},
		{"hole", `{"a":{` + ok + `},"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}}`, 10, "belong to no tensor"},
		{"overlap", `{"a":{` + ok + `},"b":{"dtype":"U8","shape":[4],"data_offsets":[7,11]}}`, 11, "overlaps"},
		{"same place twice", `{"a":{` + ok + `},"b":{` + ok + `}}`, 8, "overlaps"},
		{"past the end", `{"a":{` + ok + `}}`, 7, "end at byte 8 of 7"},
		{"trailing bytes", `{"a":{` + ok + `}}`, 9, "end at byte 8 of 9"},
		{"data without tensors", `{}`, 1, "end at byte 0 of 1"},

		{"duplicate tensor", `{"a":{` + ok + `},"a":{` + ok + `}}`, 8, `duplicate name "a"`},
		{"duplicate tensor, other escape", `{"a":{` + ok + `},"\u0061":{` + ok + `}}`, 8, `duplicate name "a"`},
		{"duplicate field", `{"a":{` + ok + `,"dtype":"F32"}}`, 8, `duplicate name "dtype"`},
		{"duplicate metadata", `{"__metadata__":{"k":"v","k":"w"}}`, 0, `duplicate name "k"`},
		{"metadata with a number", `{"__metadata__":{"k":1}}`, 0, "want a string"},
		{"metadata with an object", `{"__metadata__":{"k":{}}}`, 0, "want a string"},
		{"metadata with null", `{"__metadata__":{"k":null}}`, 0, "want a string"},
		{"metadata with a list", `{"__metadata__":{"k":["v"]}}`, 0, "want a string"},
		{"metadata is a list", `{"__metadata__":["k"]}`, 0, "want {"},
		{"metadata is null", `{"__metadata__":null}`, 0, "want {"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := ParseHeader([]byte(tt.header), tt.dataLen)
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestParseHeaderAccepts(t *testing.T) {
	tests := []struct {
		name    string
		header  string
		dataLen int64
		tensors int
	}{
		{"no tensors", `{}`, 0, 0},
		{"padding", `{}     `, 0, 0},
		{"scalar", `{"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4, 1},
		{"empty tensor", `{"e":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}}`, 0, 1},
		{"two empty tensors at one place", `{"e":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},"f":{"dtype":"F32","shape":[0],"data_offsets":[2,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2, 3},
		{"zero before large dimensions", `{"e":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}`, 0, 1},
		{"packed four bits", `{"q":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, 2, 1},
		{"surrogate pair", `{"\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, 1},
		{"escaped backslash before u", `{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, 1},
		{"out of order", `{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			entries, _, err := ParseHeader([]byte(tt.header), tt.dataLen)
			if err != nil {
				t.Fatal(err)
			}
			if len(entries) != tt.tensors {
				t.Errorf("got %d tensors, want %d", len(entries), tt.tensors)
			}
		})
	}
}

func TestParseHeaderMetadata(t *testing.T) {
	_, got, err := ParseHeader([]byte(`{"__metadata__":{"format":"pt"}}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got["format"] != "pt" {
		t.Errorf("metadata = %v", got)
	}
}

// FuzzParseHeader checks that no header panics and that accepted ones tile the
// data part.
func FuzzParseHeader(f *testing.F) {
	f.Add([]byte(`{}`), int64(0))
	f.Add([]byte(`{"__metadata__":{"a":"b"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}`), int64(12))
	f.Add([]byte(`{"\ud83d\ude00":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`), int64(4))
	f.Add([]byte(`{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}}`), int64(1))
	f.Fuzz(func(t *testing.T, header []byte, dataLen int64) {
		entries, _, err := ParseHeader(header, dataLen)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v, want ErrFormat", err)
			}
			return
		}
		var at int64
		names := map[string]bool{}
		for _, e := range entries {
			if e.Begin != at || e.End < e.Begin || names[e.Name] {
				t.Fatalf("bad entry %+v at %d", e, at)
			}
			size := e.DType.Bits()
			for _, d := range e.Shape {
				size *= uint64(d)
			}
			if size/8 != uint64(e.End-e.Begin) {
				t.Fatalf("entry %+v has %d bits", e, size)
			}
			at, names[e.Name] = e.End, true
		}
		if at != dataLen {
			t.Fatalf("entries end at %d of %d", at, dataLen)
		}
	})
}

// FuzzParseIndex checks that no index panics and that accepted ones name only
// plain files.
func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":12},"weight_map":{"a":"model-1.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := parseIndex(raw)
		if err != nil {
			return
		}
		for _, name := range x.files() {
			if name == "" || strings.ContainsAny(name, `/\`) || strings.Trim(name, ".") == "" && len(name) < 3 {
				t.Fatalf("accepted file %q", name)
			}
		}
	})
}
