package mooncake

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	f, err := os.Open("testdata/conversation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := Read(f)
	if err != nil || len(got) != 40 {
		t.Fatalf("%d requests, %v", len(got), err)
	}
	want := Request{At: 0, Input: 2290, Output: 316, Blocks: []uint64{0, 42, 43, 44, 45}}
	if !reflect.DeepEqual(got[3], want) {
		t.Errorf("got %+v, want %+v", got[3], want)
	}
	if last := got[39]; last.At != 12*time.Second {
		t.Errorf("the last is at %s", last.At)
	}
}

// Lines in another order, empty lines and lengths that do not fit their blocks.
func TestReadMakesRequestsConsistent(t *testing.T) {
	got, err := Read(strings.NewReader(`{"timestamp": 2000, "input_length": 600, "output_length": 0, "hash_ids": [7]}

{"timestamp": 1.5, "input_length": 0, "output_length": 3, "hash_ids": [1, 2], "more": true}`))
	want := []Request{{At: 1500 * time.Microsecond, Input: 1, Output: 3, Blocks: []uint64{1, 2}}, {At: 2 * time.Second, Input: 512, Output: 1, Blocks: []uint64{7}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestReadRefuses(t *testing.T) {
	const good = `{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}` + "\n"
	for text, want := range map[string]string{
		`{"input_length": 1, "output_length": 1, "hash_ids": [1]}`:                        "no timestamp",
		`{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [1]}`:       "timestamp: -1 is not between",
		`{"timestamp": 1e300, "input_length": 1, "output_length": 1, "hash_ids": [1]}`:    "timestamp: 1e+300",
		`{"timestamp": 0, "output_length": 1, "hash_ids": [1]}`:                           "no input_length",
		`{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [1]}`:       "input_length: -5",
		`{"timestamp": 0, "input_length": 16777217, "output_length": 1, "hash_ids": [1]}`: "input_length: 16777217",
		`{"timestamp": 0, "input_length": 1, "output_length": -1, "hash_ids": [1]}`:       "output_length: -1",
		`{"timestamp": 0, "input_length": 1, "output_length": 16777217, "hash_ids": [1]}`: "output_length: 16777217",
		`{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": []}`:         "no hash_ids",
		`{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [-1]}`:       "cannot unmarshal",
		`not JSON`: "invalid character",
		`{"timestamp": 0, "input_length": 1, "hash_ids": [1], "x": "` + strings.Repeat("x", maxLine) + `"}`: "token too long",
	} {
		_, err := Read(strings.NewReader(good + "\n" + text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line 3 of the trace") && want != "token too long" {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"timestamp": 27, "input_length": 513, "output_length": 4, "hash_ids": [0, 1]}`))
	f.Add([]byte("{\"timestamp\": 2.5, \"input_length\": 1, \"hash_ids\": [18446744073709551615]}\n{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		requests, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, q := range requests {
			if q.At < last || q.At > maxSpan || q.Input < 1 || q.Input > len(q.Blocks)*BlockSize || q.Output < 1 || q.Output > maxTokens {
				t.Errorf("%+v after %s", q, last)
			}
			last = q.At
		}
	})
}
