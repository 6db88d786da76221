package simulate

import (
	"time"

	"github.com/dynctl/dynctl/internal/bench/workload"
)

// Request is one request of a load. Prompts are pieces of endless texts, as in package
// workload: those that begin alike have the same first parts.
type Request struct {
	At     time.Duration
	Parts  []workload.Part
	Output int // tokens, at least 1
	// Answer is what the answer says, as far as a later prompt has it; the rest is new.
	Answer []workload.Part
	// Then, if set, is called when the answer is complete, and may give the request that
	// follows it, with a time not before that.
	Then func(now time.Duration) (Request, bool)
}

// Input returns the tokens of the prompt.
func (r *Request) Input() int {
	n := 0
	for _, p := range r.Parts {
		n += p.Tokens
	}
	return n
}

// Source gives the requests of a load in the order of their times; it is false behind the
// last. A simulation asks for the next one only when the time of the last has come.
type Source interface {
	Next() (Request, bool)
}

// token is the id that all tokens of a text have.
func token(text uint64) uint32 {
	// The finalizer of SplitMix64: texts with numbers in a row get ids far apart.
	text = (text ^ text>>30) * 0xbf58476d1ce4e5b9
	text = (text ^ text>>27) * 0x94d049bb133111eb
	return uint32(text^text>>31) & 0x7fffffff
}

// appendTokens appends the tokens of a prompt.
func appendTokens(to []uint32, parts []workload.Part) []uint32 {
	for _, p := range parts {
		id := token(p.Text)
		for range p.Tokens {
			to = append(to, id)
		}
	}
	return to
}

// answerToken returns the token at a position of an answer.
func (r *Request) answerToken(number uint64, at int) uint32 {
	for _, p := range r.Answer {
		if at < p.Tokens {
			return token(p.Text)
		}
		at -= p.Tokens
	}
	return token(kindNew<<56 | number)
}

// kindNew and kindAnswer number texts of answers; the kinds of package workload are below.
const kindNew, kindAnswer = 0xfe, 0xff
