package recall

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Probe is a text with a fact and a question about it.
type Probe struct {
	Before   string // what stands before the fact, with a space at its end; may be empty
	Fact     string // a sentence
	After    string // what follows up to the question, with spaces around
	Question string
	// Answer is the text that a right answer contains and a wrong one practically never
	// does: four digits.
	Answer string
}

// Prompt is the message to send.
func (p Probe) Prompt() string { return p.Before + p.Fact + p.After + p.Question }

// Right reports whether a text answers the question.
func (p Probe) Right(text string) bool { return strings.Contains(text, p.Answer) }

// Draw makes a probe of so many sentences, at least two, about half of them facts that
// are not asked for. The one that is asked for stands at the place where, 0 for the
// beginning of the text and 1 for its end. The first words of a text differ from those of
// practically all others, so that no prefix of it is in a cache.
func Draw(r *rand.Rand, sentences int, where float64) Probe {
	sentences = max(sentences, 2)
	doors := r.Perm(900)
	next := func() (door int, code, sentence string) {
		door, doors = doors[0]+100, doors[1:]
		code = fmt.Sprintf("%04d", r.IntN(10000))
		return door, code, fmt.Sprintf("The code of door %d is %s.", door, code)
	}
	_, _, first := next()
	lines := []string{first}
	for len(lines) < sentences-1 {
		line := fillers[r.IntN(len(fillers))]
		if r.IntN(2) == 0 && len(doors) > 2 {
			_, _, line = next()
		}
		lines = append(lines, line)
	}
	door, code, fact := next()
	at := min(max(int(where*float64(len(lines))), 1), len(lines))
	return Probe{
		Before:   strings.Join(lines[:at], " ") + " ",
		Fact:     fact,
		After:    strings.TrimSuffix(" "+strings.Join(lines[at:], " "), " ") + " ",
		Question: fmt.Sprintf("What is the code of door %d?", door), Answer: code,
	}
}

// fillers are sentences without a number.
var fillers = []string{
	"Once there was a fox called Ida who lived in a forest.",
	"One day it found an old lamp.",
	"A bear came by and asked: what is it for?",
	"They looked at it for a long time and laughed.",
	"They decided to share it.",
	"They carried it home together.",
	"It had always wanted a kite, and one day it found one.",
	"Since then the fox and the bear are friends.",
	"From that day on the owl and the frog met every evening.",
	"Then a mouse came and wanted it too.",
}
