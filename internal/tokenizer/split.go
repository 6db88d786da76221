package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
)

// behavior is the treatment of the matches of a split pattern.
type behavior uint8

const (
	removed            behavior = iota // dropped
	isolated                           // pieces of their own
	mergedWithPrevious                 // end of the piece before
	mergedWithNext                     // beginning of the piece after
	contiguous                         // neighboring matches form one piece
)

func parseBehavior(name string) (behavior, error) {
	switch name {
	case "Removed":
		return removed, nil
	case "Isolated":
		return isolated, nil
	case "MergedWithPrevious":
		return mergedWithPrevious, nil
	case "MergedWithNext":
		return mergedWithNext, nil
	case "Contiguous":
		return contiguous, nil
	}
	return 0, fmt.Errorf("%w: split behavior %q", ErrUnknownComponent, name)
}

// splitStep cuts at the matches of a pattern.
type splitStep struct {
	finder   finder
	behavior behavior
	invert   bool // the text between matches counts as the match
}

func newSplit(raw json.RawMessage) (preTokenizer, error) {
	var j struct {
		Pattern  json.RawMessage
		Behavior string
		Invert   bool
	}
	if err := unmarshal(raw, &j); err != nil {
		return nil, err
	}
	b, err := parseBehavior(j.Behavior)
	if err != nil {
		return nil, err
	}
	f, err := newFinder(j.Pattern)
	if err != nil {
		return nil, err
	}
	if sf, ok := f.(scanFinder); ok && b == isolated {
		return scanStep{sf.scanner}, nil // both sides become pieces, so invert changes nothing
	}
	return &splitStep{f, b, j.Invert}, nil
}

// scanStep is splitStep for a scanner and Isolated, the common case.
type scanStep struct{ scanner scanner }

func (x scanStep) split(e *encoder, p piece, level int) {
	gap := 0 // start of the text not yet handed on
	for i := 0; i < len(p.s) && !e.over; {
		end := x.scanner.matchAt(p.s, i)
		if end <= i {
			i += charLen(p.s[i])
			continue
		}
		if gap < i {
			e.emit(piece{p.s[gap:i], p.first && gap == 0}, level+1)
		}
		e.emit(piece{p.s[i:end], p.first && i == 0}, level+1)
		gap, i = end, end
	}
	if gap < len(p.s) {
		e.emit(piece{p.s[gap:], p.first && gap == 0}, level+1)
	}
}

func (x *splitStep) split(e *encoder, p piece, level int) {
	// A nested split needs its own buffer while this one is being walked.
	buf := e.takeSpans()
	most := math.MaxInt
	if e.limited && e.t.longest > 0 && x.behavior != removed && x.behavior != contiguous {
		most = e.room() + 1 // every match is in a piece of its own, which has a token
	}
	matches, err := findMost(x.finder, buf[:0], p.s, most)
	if err != nil {
		e.fail(err)
	}
	if len(matches) > most {
		e.overflow()
	} else {
		x.cut(p.s, matches, func(start, end int) bool {
			e.emit(piece{p.s[start:end], p.first && start == 0}, level+1)
			return !e.over
		})
	}
	e.giveSpans(matches)
}

// cut calls yield for each part of s, in order, until it returns false; parts can be
// empty.
func (x *splitStep) cut(s string, matches []span, yield func(start, end int) bool) {
	type part struct {
		span
		match bool
	}
	// Walks matches and the text between them, one part of lookahead.
	next, at := 0, 0
	following := func() (part, bool) {
		if next < len(matches) {
			m := matches[next]
			if at < m.start {
				q := part{span{at, m.start}, x.invert}
				at = m.start
				return q, true
			}
			next++
			at = m.end
			return part{m, !x.invert}, true
		}
		if at < len(s) {
			q := part{span{at, len(s)}, x.invert}
			at = len(s)
			return q, true
		}
		return part{}, false
	}

	switch x.behavior {
	case removed, isolated:
		for q, ok := following(); ok; q, ok = following() {
			if (x.behavior == isolated || !q.match) && !yield(q.start, q.end) {
				return
			}
		}
	case contiguous, mergedWithPrevious:
		cur, ok := following()
		if !ok {
			return
		}
		previous := cur.match
		for q, ok := following(); ok; q, ok = following() {
			join := q.match == previous
			if x.behavior == mergedWithPrevious {
				join = q.match && !previous
			}
			if join {
				cur.end = q.end
			} else {
				if !yield(cur.start, cur.end) {
					return
				}
				cur = q
			}
			previous = q.match
		}
		yield(cur.start, cur.end)
	case mergedWithNext:
		// A match joins what follows unless that is itself a match.
		cur, ok := following()
		if !ok {
			return
		}
		for q, ok := following(); ok; q, ok = following() {
			if cur.match && !q.match {
				if !yield(cur.start, q.end) {
					return
				}
				if cur, ok = following(); !ok {
					return
				}
				continue
			}
			if !yield(cur.start, cur.end) {
				return
			}
			cur = q
		}
		yield(cur.start, cur.end)
	}
}
