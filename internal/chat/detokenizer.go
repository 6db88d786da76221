package chat

// Detokenizer turns the tokens of one sequence into text as they are generated,
// and ends the text at the first stop string.
//
// It holds text back while it ends in an incomplete character or in the beginning of a
// stop string. The stop string that is complete first wins, whatever the order of the
// list and however the tokens were split over calls. Of several that end at the same
// byte, the one that begins first wins.
type Detokenizer struct {
	stream  textStream
	stops   *stopSet
	include bool
	state   int32 // of stops; its text is held back
	min     int   // tokens before stop strings count
	tokens  int
	decoded int // bytes of text, those held back among them
	stopped bool
}

// textStream decodes a growing sequence; *tokenizer.Stream is one.
type textStream interface {
	Push(ids ...uint32) string
	Flush() string
	Keep(ids []uint32)
}

// Stops is a set of stop strings, which sequences can share.
type Stops struct{ set *stopSet }

// NewStops makes a set; empty strings are ignored. It takes some hundred bytes for each
// byte of the strings.
func NewStops(stops []string) Stops { return Stops{newStopSet(stops)} }

// NewDetokenizer starts a sequence. Text ends before the first of the stop
// strings, or after it if includeStop is set. With skipSpecial, special tokens leave no
// text.
func (p *Processor) NewDetokenizer(stops Stops, includeStop, skipSpecial bool) *Detokenizer {
	return newDetokenizer(p.tok.NewStream(skipSpecial), stops, includeStop)
}

func newDetokenizer(s textStream, stops Stops, includeStop bool) *Detokenizer {
	return &Detokenizer{stream: s, stops: stops.set, include: includeStop}
}

// SetMinTokens makes stop strings count only in text that follows the first n
// tokens. Call it before the first Push.
func (d *Detokenizer) SetMinTokens(n int) { d.min = n }

// Keep makes some special tokens leave their text even if others do not. Call it
// before the first Push.
func (d *Detokenizer) Keep(ids []uint32) { d.stream.Keep(ids) }

// Tokens returns the number of tokens taken, including the one that completed a stop
// string.
func (d *Detokenizer) Tokens() int { return d.tokens }

// Decoded returns how many bytes of text the taken tokens have given: returned by Push,
// held back, or dropped after a stop string.
func (d *Detokenizer) Decoded() int { return d.decoded }

// Stopped reports whether a stop string was found. Flush can find one, too: some
// text becomes certain only at the end.
func (d *Detokenizer) Stopped() bool { return d.stopped }

// Push adds tokens. It returns the text that has become final, and whether a stop string
// was found. After a stop string it returns no more text.
func (d *Detokenizer) Push(ids []uint32) (text string, stopped bool) {
	if d.stopped {
		return "", true
	}
	if d.stops == nil {
		d.tokens += len(ids)
		text = d.stream.Push(ids...)
		d.decoded += len(text)
		return text, false
	}
	var out []byte
	for _, id := range ids {
		d.tokens++
		piece := d.stream.Push(id)
		d.decoded += len(piece)
		if d.tokens <= d.min {
			out = append(out, piece...)
			continue
		}
		if out = d.scan(out, piece); d.stopped {
			break
		}
	}
	return string(out), d.stopped
}

// Flush ends the sequence and returns the text still held back. A partial stop string at
// the end is ordinary text, and an incomplete character becomes U+FFFD.
func (d *Detokenizer) Flush() string {
	if d.stopped {
		return ""
	}
	rest := d.stream.Flush()
	d.decoded += len(rest)
	if d.stops == nil || d.tokens <= d.min {
		return rest
	}
	out := d.scan(nil, rest)
	if !d.stopped {
		out = append(out, d.stops.nodes[d.state].text...)
		d.state = 0
	}
	return string(out)
}

// scan reads text and appends its final part to out.
func (d *Detokenizer) scan(out []byte, text string) []byte {
	match := 0
	for i := range len(text) {
		if out, d.state, match = d.stops.read(out, d.state, text[i], d.include); match > 0 {
			d.stopped = true
			break
		}
	}
	return out
}
