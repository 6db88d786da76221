package protocol

import "slices"

// Stopper applies stop conditions to tokens of an engine that may generate more than they
// allow. Its zero value with Conditions is ready to use by one goroutine.
type Stopper struct {
	Conditions StopConditions
	// Sent counts the tokens that were kept. Finish is why the answer is complete,
	// FinishNone as long as it is not.
	Sent   int
	Finish FinishReason
}

// Keep returns how many of the tokens that follow belong to the answer.
func (s *Stopper) Keep(tokens []uint32) (n int) {
	if s.Finish != FinishNone {
		return 0
	}
	c := s.Conditions
	for _, t := range tokens {
		early := s.Sent < c.MinTokens
		if !early && slices.Contains(c.StopTokenIDs, t) {
			s.Finish = FinishStop
			break
		}
		n++
		s.Sent++
		if !early && slices.Contains(c.StopTokenIDsVisible, t) {
			s.Finish = FinishStop
			break
		}
		if s.Sent == c.MaxTokens {
			s.Finish = FinishLength
			break
		}
	}
	return n
}

// First returns the values of the first n tokens.
func (l *Logprobs) First(n int) *Logprobs {
	if l == nil || n >= len(l.Tokens) {
		return l
	}
	return &Logprobs{Tokens: l.Tokens[:n], Width: l.Width, TopIDs: l.TopIDs[:n*l.Width], TopValues: l.TopValues[:n*l.Width]}
}
