package judge

// Seen is what answers about pictures say of the embeddings that one worker computed and
// another one read.
type Seen struct {
	Encode, Reader string
	Right, Wrong   int    // answers
	Why            string // the reader encoded an image itself, if it did
}

// Judge says whether the embeddings arrived whole.
func (s Seen) Judge() Finding {
	switch {
	case s.Right > 0:
		return good("%s sees what %s has encoded", s.Reader, s.Encode)
	case s.Wrong > 0:
		return Bad("dynctl explain path "+s.Encode+" "+s.Reader+", and another transport: --nixl-transports tcp",
			"%s cannot tell what is in pictures that %s encoded: the embeddings arrived damaged", s.Reader, s.Encode)
	case s.Why != "":
		return Bad("dynctl logs "+s.Encode, "%s encoded images itself: %s", s.Reader, s.Why)
	}
	return Skipped("no picture fell to %s", s.Encode)
}
