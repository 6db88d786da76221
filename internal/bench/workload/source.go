package workload

import (
	"math/rand/v2"
	"time"

	"github.com/dynctl/dynctl/internal/mooncake"
)

// Part is a piece of a prompt: the first tokens of one of endlessly many endless texts.
type Part struct {
	Text   uint64 // which text
	Tokens int
}

// Turn is what a user adds to a conversation, and how long the answer shall be.
type Turn struct {
	Parts  []Part
	Output int // tokens
}

// Input returns the tokens that the turn adds.
func (t Turn) Input() int {
	n := 0
	for _, p := range t.Parts {
		n += p.Tokens
	}
	return n
}

// Conversation is one or more turns.
type Conversation struct {
	At    time.Duration // of a trace: when it begins
	Turns []Turn
}

// Source gives the conversations of a load by number, from 0. It is false behind the last.
// A source may be used by several goroutines at once.
type Source interface {
	Conversation(i int) (Conversation, bool)
}

// Kinds of texts: those of one kind share nothing with another's.
const (
	kindPrefix = iota + 1
	kindOwn
	kindBlock
)

// textOf numbers a text by its kind and its number within it.
func textOf(kind, n uint64) uint64 { return kind<<56 ^ n&(1<<56-1) }

// Synthetic draws conversations without end.
type Synthetic struct {
	Input, Output Lengths
	// Share is the part of each first turn that is one of Prefixes common beginnings, 0 to 1.
	Share    float64
	Prefixes int
	Turns    int // of each conversation
	Seed     uint64
}

// Conversation implements [Source].
func (s Synthetic) Conversation(i int) (Conversation, bool) {
	r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
	var c Conversation
	for k := range s.Turns {
		n := s.Input.Draw(r)
		var parts []Part
		if shared := int(float64(n) * s.Share); k == 0 && shared > 0 {
			parts = append(parts, Part{textOf(kindPrefix, uint64(r.IntN(s.Prefixes))), shared})
			n -= shared
		}
		if n > 0 {
			parts = append(parts, Part{textOf(kindOwn, uint64(i)<<16|uint64(k)), n})
		}
		c.Turns = append(c.Turns, Turn{parts, s.Output.Draw(r)})
	}
	return c, true
}

// MaxTurns bounds the turns of a conversation.
const MaxTurns = 1 << 16

// Trace replays the requests of a trace. Equal ids become equal texts, so that prompts share
// in text what they share in ids.
type Trace struct {
	Requests []mooncake.Request
	Speed    float64 // times as fast as in the trace
}

// Conversation implements [Source].
func (t Trace) Conversation(i int) (Conversation, bool) {
	if i >= len(t.Requests) {
		return Conversation{}, false
	}
	q := t.Requests[i]
	turn := Turn{Output: q.Output}
	for left, k := q.Input, 0; left > 0; k++ {
		n := min(left, mooncake.BlockSize)
		turn.Parts = append(turn.Parts, Part{textOf(kindBlock, q.Blocks[k]), n})
		left -= n
	}
	return Conversation{At: t.at(q), Turns: []Turn{turn}}, true
}

func (t Trace) at(q mooncake.Request) time.Duration {
	return time.Duration(float64(q.At-t.Requests[0].At) / t.Speed)
}

// Span returns when the last request comes.
func (t Trace) Span() time.Duration {
	if len(t.Requests) == 0 {
		return 0
	}
	return t.at(t.Requests[len(t.Requests)-1])
}
