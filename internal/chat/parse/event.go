package parse

// Kind says what an event is.
type Kind uint8

const (
	// Content is a piece of the answer.
	Content Kind = iota
	// Reasoning is a piece of what the model thought before it answered.
	Reasoning
	// CallBegin opens a tool call: its name is known, arguments follow.
	CallBegin
	// CallArguments is a piece of the arguments of the open call, JSON text.
	CallArguments
	// CallEnd closes the open call.
	CallEnd
)

// Event is one step of an answer. Calls do not overlap: between CallBegin and
// CallEnd all arguments belong to one call.
type Event struct {
	Kind Kind
	Text string // of Content, Reasoning and CallArguments
	Call int    // of the three kinds of calls: which one, from 0
	ID   string // of CallBegin
	Name string // of CallBegin: the function
	// Broken is set with CallEnd if the text ended or went astray inside the
	// arguments, which are then the beginning of an object. If it is not set, they
	// are a whole object.
	Broken bool
}

// sink gathers events; pieces of the same kind that follow each other become one.
type sink struct {
	events []Event
	kind   Kind   // of text
	text   []byte // not yet an event
	newID  func() string

	calls  int  // begun
	open   bool // one of them is
	broken bool // one of them was
	one    bool // the first whole call ends everything
	done   bool
}

func (s *sink) add(kind Kind, text ...byte) {
	if len(text) == 0 {
		return
	}
	if s.kind != kind {
		s.flush()
		s.kind = kind
	}
	s.text = append(s.text, text...)
}

func (s *sink) flush() {
	if len(s.text) == 0 {
		return
	}
	e := Event{Kind: s.kind, Text: string(s.text)}
	if s.kind == CallArguments {
		e.Call = s.calls - 1
	}
	s.events = append(s.events, e)
	s.text = s.text[:0]
}

// begin opens a call; an empty id is replaced by a new one.
func (s *sink) begin(name, id string) {
	s.flush()
	if id == "" {
		id = s.newID()
	}
	s.events = append(s.events, Event{Kind: CallBegin, Call: s.calls, ID: id, Name: name})
	s.calls++
	s.open = true
}

// finish closes the open call; whole says that its arguments are complete.
func (s *sink) finish(whole bool) {
	s.flush()
	s.events = append(s.events, Event{Kind: CallEnd, Call: s.calls - 1, Broken: !whole})
	s.open = false
	s.broken = s.broken || !whole
	s.done = s.done || s.one && whole
}

// take returns the events since the last call.
func (s *sink) take() []Event {
	s.flush()
	events := s.events
	s.events = nil
	return events
}

// stage reads text byte by byte and hands what it makes of it to a sink or to
// another stage.
type stage interface {
	put(b byte)
	end() // of the text
}

// plain is the last stage where nothing is looked for: all is content.
type plain struct{ out *sink }

func (p plain) put(b byte) { p.out.add(Content, b) }

func (plain) end() {}
