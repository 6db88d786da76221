package chat

// stopSet finds the first of several strings in a text that arrives in pieces. It is an
// Aho-Corasick automaton over bytes. Every state stands for the longest suffix of the
// text so far that is a prefix of a stop string, which is exactly the text to hold back.
// Reading a byte takes constant time on average.
type stopSet struct {
	nodes []stopNode
}

type stopNode struct {
	edges []stopEdge
	text  string // the text that the state stands for: a prefix of a stop string
	fail  int32  // the state of the longest proper suffix of text
	match int    // length of the longest stop string that ends here, 0 for none
}

type stopEdge struct {
	b  byte
	to int32
}

// newStopSet returns nil if there is nothing to find. It ignores empty strings.
func newStopSet(stops []string) *stopSet {
	s := &stopSet{nodes: make([]stopNode, 1)}
	for _, stop := range stops {
		at := int32(0)
		for i := range len(stop) {
			to, ok := s.child(at, stop[i])
			if !ok {
				to = int32(len(s.nodes))
				s.nodes = append(s.nodes, stopNode{text: stop[:i+1]})
				s.nodes[at].edges = append(s.nodes[at].edges, stopEdge{stop[i], to})
			}
			at = to
		}
		if at != 0 {
			s.nodes[at].match = len(stop)
		}
	}
	if len(s.nodes) == 1 {
		return nil
	}
	// Breadth first, because a state's fail state is shorter than the state.
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range s.nodes[at].edges {
			n := &s.nodes[e.to]
			if at != 0 {
				n.fail = s.next(s.nodes[at].fail, e.b)
			}
			n.match = max(n.match, s.nodes[n.fail].match)
			queue = append(queue, e.to)
		}
	}
	return s
}

func (s *stopSet) child(at int32, b byte) (int32, bool) {
	for _, e := range s.nodes[at].edges {
		if e.b == b {
			return e.to, true
		}
	}
	return 0, false
}

// next returns the state after one more byte.
func (s *stopSet) next(at int32, b byte) int32 {
	for {
		if to, ok := s.child(at, b); ok {
			return to
		}
		if at == 0 {
			return 0
		}
		at = s.nodes[at].fail
	}
}

// read advances a state by one byte. It appends the text that is no longer held back to
// out and returns the new state. If that completes a stop string, match is its length,
// and out gets the text up to its beginning, or to its end with include.
func (s *stopSet) read(out []byte, at int32, b byte, include bool) (_ []byte, to int32, match int) {
	held := s.nodes[at].text
	to = s.next(at, b)
	free := len(held) + 1 - len(s.nodes[to].text)
	if match = s.nodes[to].match; match > 0 {
		free = len(held) + 1
		if !include {
			free -= match
		}
	}
	if free > len(held) {
		return append(append(out, held...), b), to, match
	}
	return append(out, held[:free]...), to, match
}
