package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/lab/route"
)

// Runs of the same seed differ in their tokens only, and share none of them.
func TestChatsOfOneSeed(t *testing.T) {
	a, b := makeChats(1, 1, 20, time.Second), makeChats(1, 2, 20, time.Second)
	for i := range a {
		if len(a[i]) != len(b[i]) {
			t.Fatalf("session %d has %d turns and %d", i, len(a[i]), len(b[i]))
		}
		for k, turn := range a[i] {
			other := b[i][k]
			if turn.after != other.after || len(turn.prompt) != len(other.prompt) || len(turn.prompt) != chatSystem+(k+1)*chatTurn {
				t.Fatalf("session %d, turn %d: %d tokens after %s and %d after %s", i, k, len(turn.prompt), turn.after, len(other.prompt), other.after)
			}
			if string(asText(turn.prompt[:chatBlock])) == string(asText(other.prompt[:chatBlock])) {
				t.Fatalf("session %d: runs share a block", i)
			}
		}
	}
}

func asText(ids []uint32) (out []rune) {
	for _, id := range ids {
		out = append(out, rune(id))
	}
	return out
}

// The trace has the blocks that prompts share, so that a replay reuses what workers could.
func TestTraceOfChats(t *testing.T) {
	var seen []chatSeen
	at := time.Now()
	for _, turn := range makeChats(1, 1, 1, time.Second)[0][:1] {
		seen = append(seen, chatSeen{asked: at, turn: turn}, chatSeen{asked: at.Add(time.Second), turn: turn})
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := writeTrace(path, seen); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	requests, err := route.ReadMooncake(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	const blocks = (chatSystem + chatTurn) / chatBlock
	if len(requests) != 2 || len(requests[0].Hashes) != blocks || requests[1].At != time.Second || requests[1].Tokens != blocks*route.BlockSize {
		t.Fatalf("the trace is read as %+v", requests)
	}
	if lru, _ := route.Ideal(requests, 1000); lru != (blocks-1.)/(2*blocks) { // the last token is always computed
		t.Errorf("a replay reuses %.2f of two equal prompts, want all but a block of the second", lru)
	}
}

// What is printed of a fault: failures, wrong predictions, and for how long there was no
// right one.
func TestFaultRow(t *testing.T) {
	at := time.Now()
	turn := chatTurnSpec{prompt: make([]uint32, 160)}
	seen := []chatSeen{
		{asked: at, ttft: time.Minute, turn: turn, predicted: 3, found: 2},
		{asked: at.Add(time.Second), turn: turn, predicted: 3, found: 1},
		{asked: at.Add(2 * time.Second), turn: turn, predicted: 3, found: 3},
		{asked: at.Add(3 * time.Second), turn: turn, predicted: 1, found: 3},
		{asked: at.Add(4 * time.Second), turn: turn, err: os.ErrDeadlineExceeded},
	}
	row := faultOf(seen)
	if want := (faultSeen{turns: 5, failed: 1, tooMuch: 2, tooLittle: 1, longest: time.Second, slowest: time.Minute}); row != want {
		t.Errorf("%+v, want %+v", row, want)
	}
}
