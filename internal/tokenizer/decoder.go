package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// decodeStep is one step from tokens to text. Its settings are shared; its state between
// tokens is in the sink that open makes.
type decodeStep interface {
	// open starts a sequence whose results go to next. whole reports that the complete
	// sequence is pushed before any text is shown.
	open(next decodeSink, whole bool) decodeSink
	// middle maps the bytes of a token that is neither first nor last.
	middle(b []byte) []byte
}

// decodeSink receives tokens, possibly in parts: first marks the beginning of a
// token, last its end. A step that joins tokens passes on one token that ends
// only when the sequence does, so nothing downstream has to wait for the end to
// treat every token by itself.
type decodeSink interface {
	put(s string, first, last bool)
	// close ends the sequence; everything held back must go out.
	close()
}

// newDecoder compiles the file's decoder into the list of its steps.
func newDecoder(raw json.RawMessage, depth int) ([]decodeStep, error) {
	typ, err := componentType(raw, depth)
	if err != nil {
		return nil, err
	}
	one := func(s decodeStep, err error) ([]decodeStep, error) { return []decodeStep{s}, err }
	switch typ {
	case "":
		return one(spaceJoin{}, nil)
	case "Sequence":
		var j struct{ Decoders []json.RawMessage }
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		var all []decodeStep
		total := 1
		for i, r := range j.Decoders {
			if absent(r) {
				return nil, fmt.Errorf("item %d: %w: missing", i, ErrMalformed)
			}
			steps, err := newDecoder(r, depth+1)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			all = append(all, steps...)
		}
		for _, s := range all {
			if r, ok := s.(replaceDecoder); ok {
				if total *= growth(r.finder, r.content); total > maxGrowth {
					return nil, fmt.Errorf("%w: replacements can make text %d times as long", ErrTooLarge, total)
				}
			}
		}
		return all, nil
	case "ByteLevel":
		return one(byteLevelDecoder{}, nil)
	case "ByteFallback":
		return one(byteFallback{}, nil)
	case "Fuse":
		return one(fuse{}, nil)
	case "Metaspace":
		m, err := newMetaspace(raw)
		return one(metaspaceDecoder{m}, err)
	case "Replace":
		f, content, err := newReplace(raw)
		return one(replaceDecoder{f, content}, err)
	case "Strip":
		var j struct {
			Content     string
			Start, Stop uint32
		}
		if err := unmarshal(raw, &j); err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(j.Content) != 1 {
			return nil, fmt.Errorf("%w: strip content %q is not one character", ErrMalformed, j.Content)
		}
		return one(stripDecoder{j.Content, int(j.Start), int(j.Stop)}, nil)
	case "WordPiece":
		j := struct {
			Prefix  string
			Cleanup bool
		}{"##", true}
		err := unmarshal(raw, &j)
		return one(wordPieceDecoder{j.Prefix, j.Cleanup}, err)
	case "BPEDecoder":
		j := struct{ Suffix string }{"</w>"}
		err := unmarshal(raw, &j)
		return one(bpeDecoder{j.Suffix}, err)
	}
	return nil, fmt.Errorf("%w: decoder type %q", ErrUnknownComponent, typ)
}

// collector is the end of the chain.
type collector struct{ out []byte }

func (c *collector) put(s string, _, _ bool) { c.out = append(c.out, s...) }
func (c *collector) close()                  {}

func (c *collector) take() string {
	s := string(c.out)
	c.out = c.out[:0]
	return s
}

// tokenParts puts the parts of a token together, for steps that need all of it.
type tokenParts struct{ held []byte }

func (t *tokenParts) add(s string, first, last bool) (token string, ok bool) {
	if first && last {
		return s, true
	}
	t.held = append(t.held, s...)
	if !last {
		return "", false
	}
	token = string(t.held)
	t.held = t.held[:0]
	return token, true
}

// spaceJoin stands for no decoder: tokens separated by spaces.
type spaceJoin struct{}

type spaceJoinSink struct {
	next  decodeSink
	begun bool
}

func (spaceJoin) open(next decodeSink, _ bool) decodeSink { return &spaceJoinSink{next: next} }
func (spaceJoin) middle(b []byte) []byte                  { return append([]byte{' '}, b...) }

func (k *spaceJoinSink) put(s string, first, last bool) {
	if first && k.begun {
		s = " " + s
	}
	k.begun = true
	k.next.put(s, first, last)
}
func (k *spaceJoinSink) close() { k.next.close() }

// fuse joins all tokens into one.
type fuse struct{}

type fuseSink struct {
	next  decodeSink
	begun bool
}

func (fuse) open(next decodeSink, _ bool) decodeSink { return &fuseSink{next: next} }
func (fuse) middle(b []byte) []byte                  { return b }

func (k *fuseSink) put(s string, _, _ bool) {
	k.next.put(s, !k.begun, false)
	k.begun = true
}

func (k *fuseSink) close() {
	k.next.put("", !k.begun, true)
	k.next.close()
}

// metaspaceDecoder turns the mark into a space; the first token loses it.
type metaspaceDecoder struct{ *metaspace }

type metaspaceSink struct {
	metaspaceDecoder
	next   decodeSink
	tokens int
}

func (m metaspaceDecoder) open(next decodeSink, _ bool) decodeSink {
	return &metaspaceSink{m, next, 0}
}

func (m metaspaceDecoder) middle(b []byte) []byte {
	return []byte(strings.ReplaceAll(string(b), m.mark, " "))
}

func (k *metaspaceSink) put(s string, first, last bool) {
	if first {
		k.tokens++
	}
	space := " "
	if k.tokens == 1 && k.prepend != "never" {
		space = ""
	}
	k.next.put(strings.ReplaceAll(s, k.mark, space), first, last)
}
func (k *metaspaceSink) close() { k.next.close() }

// wordPieceDecoder joins continuations and separates words; cleanup takes back
// spaces that English tokenization put in.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

type wordPieceSink struct {
	wordPieceDecoder
	next  decodeSink
	parts tokenParts
	begun bool
}

func (d wordPieceDecoder) open(next decodeSink, _ bool) decodeSink {
	return &wordPieceSink{wordPieceDecoder: d, next: next}
}

func (d wordPieceDecoder) middle(b []byte) []byte { return []byte(d.token(string(b), true)) }

func (d wordPieceDecoder) token(s string, begun bool) string {
	if begun {
		if rest, ok := strings.CutPrefix(s, d.prefix); ok {
			s = rest
		} else {
			s = " " + s
		}
	}
	if d.cleanup {
		// In this order: later rules see what earlier ones left.
		for _, rule := range [...][2]string{
			{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
			{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
		} {
			s = strings.ReplaceAll(s, rule[0], rule[1])
		}
	}
	return s
}

func (k *wordPieceSink) put(s string, first, last bool) {
	if token, ok := k.parts.add(s, first, last); ok {
		k.next.put(k.token(token, k.begun), true, true)
		k.begun = true
	}
}
func (k *wordPieceSink) close() { k.next.close() }

// bpeDecoder turns the end-of-word mark into a space, except in the last token;
// so it is always one token behind.
type bpeDecoder struct{ suffix string }

type bpeDecoderSink struct {
	bpeDecoder
	next  decodeSink
	parts tokenParts
	held  string
	begun bool
}

func (d bpeDecoder) open(next decodeSink, _ bool) decodeSink {
	return &bpeDecoderSink{bpeDecoder: d, next: next}
}

func (d bpeDecoder) middle(b []byte) []byte { return []byte(d.token(string(b), " ")) }

func (d bpeDecoder) token(s, to string) string {
	return strings.ReplaceAll(s, d.suffix, to)
}

func (k *bpeDecoderSink) put(s string, first, last bool) {
	token, ok := k.parts.add(s, first, last)
	if !ok {
		return
	}
	if k.begun {
		k.next.put(k.token(k.held, " "), true, true)
	}
	k.held, k.begun = token, true
}

func (k *bpeDecoderSink) close() {
	if k.begun {
		k.next.put(k.token(k.held, ""), true, true)
	}
	k.next.close()
}
