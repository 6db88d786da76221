package parse

import "encoding/json"

// object reads one call: {"name": ..., "arguments": {...}}, in any order, perhaps
// inside {"function": ...}.
type object struct {
	c        *calls
	declared bool // only declared tools are calls
	state    objectState
	nested   bool
	as       member
	key      string
	value    value
	word     []byte // key, name, or arguments that wait for the name
	name, id string
	waiting  []byte // arguments, complete
	finished bool
}

type objectState uint8

const (
	objectKey objectState = iota
	objectInKey
	objectColon
	objectValue
	objectIn
	objectNext
)

// member tells the purpose of a value of the object.
type member uint8

const (
	asNothing member = iota
	asName
	asID
	asArguments // goes out as it comes
	asLater     // arguments before the name
	asText      // arguments written as a string
)

func (o *object) reset(c *calls, declared bool) { *o = object{c: c, declared: declared} }

func (o *object) put(b byte) verdict {
	switch o.state {
	case objectInKey:
		return o.inKey(b)
	case objectIn:
		return o.in(b)
	}
	if space(b) {
		return more
	}
	switch o.state {
	case objectKey:
		switch b {
		case '"':
			o.value.reset()
			o.word, _ = o.value.put(o.word[:0], b)
			o.state = objectInKey
			return more
		case '}':
			return o.close()
		}
	case objectColon:
		if b == ':' {
			o.state = objectValue
			return more
		}
	case objectValue:
		return o.begin(b)
	case objectNext:
		switch b {
		case ',':
			o.state = objectKey
			return more
		case '}':
			return o.close()
		}
	}
	return bad
}

func (o *object) inKey(b byte) verdict {
	var v verdict
	o.word, v = o.value.put(o.word, b)
	switch {
	case v == done:
		if json.Unmarshal(o.word, &o.key) != nil {
			return bad
		}
		switch o.key {
		case "name", "arguments", "parameters", "function", "id", "type":
		default:
			if o.declared {
				return bad
			}
		}
		o.state = objectColon
		return more
	case len(o.word) > maxName:
		return bad
	}
	return v
}

// begin reads the first byte of a member's value.
func (o *object) begin(b byte) verdict {
	o.as = asNothing
	switch o.key {
	case "name":
		o.as = asName
	case "id":
		o.as = asID
	case "function":
		if b == '{' {
			if o.nested {
				return bad
			}
			o.nested, o.state = true, objectKey
			return more
		}
		o.as = asName
	case "arguments", "parameters":
		switch {
		case o.finished || o.waiting != nil:
		case b == '{' && o.name != "":
			o.as = asArguments
			o.c.begin(o.name, o.id)
		case b == '{':
			o.as = asLater
		case b == '"':
			o.as = asText
		case b != 'n': // null is none
			return bad
		}
	}
	if (o.as == asName || o.as == asID) && b != '"' {
		o.as = asNothing
	}
	o.value.reset()
	o.word = o.word[:0]
	o.state = objectIn
	return o.in(b)
}

// in reads a byte of a member's value.
func (o *object) in(b byte) verdict {
	var v verdict
	at := len(o.word)
	o.word, v = o.value.put(o.word, b)
	switch o.as {
	case asArguments:
		o.c.args(o.word...)
		o.word = o.word[:0]
	case asNothing:
		o.word = o.word[:0]
	case asName, asID:
		if at > maxName {
			return bad
		}
	}
	if v == more || v == bad {
		return v
	}
	o.state = objectNext
	if !o.ended() {
		return bad
	}
	if v == before {
		return o.put(b)
	}
	return more
}

// ended takes a complete value.
func (o *object) ended() bool {
	switch o.as {
	case asName:
		return o.named()
	case asID:
		return json.Unmarshal(o.word, &o.id) == nil
	case asArguments:
		o.c.finish()
		o.finished = true
	case asLater:
		o.waiting = append([]byte{}, o.word...)
		o.tell()
	case asText:
		var text string
		if json.Unmarshal(o.word, &text) != nil {
			return false
		}
		args, ok := argumentsOf(text)
		if !ok {
			return false
		}
		o.waiting = args
		o.tell()
	}
	return true
}

// argumentsOf reads arguments from a text of their own; none are an empty object.
func argumentsOf(text string) ([]byte, bool) {
	args, ok := convert(text, false)
	if !ok {
		for i := range len(text) {
			if !space(text[i]) {
				return nil, false
			}
		}
		return []byte("{}"), true
	}
	return args, args[0] == '{'
}

func (o *object) named() bool {
	if o.name != "" { // the name of a function inside wins over a type
		return true
	}
	if json.Unmarshal(o.word, &o.name) != nil || !validName(o.name) || o.declared && !o.c.tools.has(o.name) {
		return false
	}
	o.tell()
	return true
}

// tell announces a call whose arguments came before its name.
func (o *object) tell() {
	if o.name == "" || o.waiting == nil || o.finished {
		return
	}
	o.c.begin(o.name, o.id)
	o.c.args(o.waiting...)
	o.c.finish()
	o.finished = true
}

// close reads the closing bracket.
func (o *object) close() verdict {
	if o.nested {
		o.nested, o.state = false, objectNext
		return more
	}
	if !o.finished {
		if o.waiting == nil {
			o.waiting = []byte("{}")
		}
		o.tell()
	}
	if !o.finished {
		return bad
	}
	return done
}
