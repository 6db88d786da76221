package mooncake

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// What is written is read as it was.
func TestWrite(t *testing.T) {
	f, err := os.Open("testdata/conversation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	want[39].At = 12*time.Second + 345*time.Microsecond
	var b bytes.Buffer
	if err := Write(&b, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(bytes.NewReader(b.Bytes()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if first, _, _ := strings.Cut(b.String(), "\n"); first != `{"timestamp":0,"input_length":6758,"output_length":500,"hash_ids":[0,1,2,3,4,5,6,7,8,9,10,11,12,13]}` {
		t.Errorf("the first line is %s", first)
	}
	if err := Write(full{}, want); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
