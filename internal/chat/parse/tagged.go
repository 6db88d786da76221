package parse

import "strings"

// tagFormat is a way to write calls as tags, one for each parameter.
type tagFormat struct {
	open, close     string // around all calls
	call, callEnd   string // around one; the name follows call
	param, paramEnd string // around a parameter; its name follows param
	// keyEnd ends the name of a parameter and valueOpen begins its value, where
	// they are tags of their own. The name of the call ends with its line then.
	keyEnd, valueOpen string
	// lines says that the value stands on lines of its own.
	lines bool
	// key reads what stands between param and the end of its tag: the name, and
	// the type of the value if the format tells it.
	key func(text string) (name string, types kinds)
}

// tagged reads calls of such a format.
type tagged struct {
	c     *calls
	f     *tagFormat
	state taggedState
	next  expect
	word  []byte // a name
	name  string
	first bool  // no parameter yet
	types kinds // of the parameter
	ends  marks // of its value
	begun bool  // its value has text
	line  bool  // a line break of the value is held back
	text  []byte
	free  []byte
}

type taggedState uint8

const (
	taggedCall  taggedState = iota // before a call
	taggedName                     // in its name
	taggedBody                     // before a parameter
	taggedKey                      // in its name
	taggedOpen                     // before its value
	taggedValue                    // in its value
)

func newTagged(c *calls, f *tagFormat, hit int) *tagged {
	t := &tagged{c: c, f: f, ends: marks{list: []string{f.paramEnd}}}
	if f.call == "" || hit > 0 {
		t.state = taggedName
	}
	return t
}

func (t *tagged) put(b byte) verdict {
	switch t.state {
	case taggedCall:
		return t.call(b)
	case taggedName:
		return t.inName(b)
	case taggedBody:
		return t.body(b)
	case taggedKey:
		return t.inKey(b)
	case taggedOpen:
		if _, v := t.next.put(b, t.f.valueOpen); v != done {
			return v
		}
		t.state = taggedValue
		return more
	}
	return t.inValue(b)
}

func (t *tagged) call(b byte) verdict {
	hit, v := t.next.put(b, t.f.close, t.f.call)
	switch {
	case v != done:
		if t.c.told {
			return ending(v)
		}
		return v
	case hit == 1:
		t.word, t.state = t.word[:0], taggedName
		return more
	case t.c.told:
		return done
	}
	return bad
}

func (t *tagged) inName(b byte) verdict {
	if t.f.keyEnd == "" && b != '>' || t.f.keyEnd != "" && b != '<' && (b != '\n' || len(t.word) == 0) {
		if t.f.keyEnd == "" || !space(b) {
			t.word = append(t.word, b)
		}
		if len(t.word) > maxName {
			return bad
		}
		return more
	}
	t.name = strings.Trim(string(t.word), " \n\"'")
	if !validName(t.name) {
		return bad
	}
	t.state, t.first = taggedBody, true
	if b == '<' {
		return t.body(b)
	}
	return more
}

func (t *tagged) body(b byte) verdict {
	hit, v := t.next.put(b, t.f.param, t.f.callEnd)
	if v != done {
		return v
	}
	if t.first {
		t.c.begin(t.name, "")
		t.c.args('{')
	}
	if hit == 0 {
		t.word, t.state = t.word[:0], taggedKey
		return more
	}
	t.c.args('}')
	t.c.finish()
	if t.f.call == "" {
		return done
	}
	t.state = taggedCall
	return more
}

func (t *tagged) inKey(b byte) verdict {
	if t.word = append(t.word, b); len(t.word) > maxName {
		return bad
	}
	if b != '>' || !strings.HasSuffix(string(t.word), t.f.keyEnd) {
		return more
	}
	text := strings.TrimSuffix(string(t.word[:len(t.word)-1]), strings.TrimSuffix(t.f.keyEnd, ">"))
	key, types := strings.Trim(text, " \n\"'"), kinds(0)
	if t.f.key != nil {
		key, types = t.f.key(text)
	}
	if types == 0 {
		types = t.c.tools.types(t.name, key)
	}
	t.types = types
	if !t.first {
		t.c.args(',', ' ')
	}
	t.first = false
	out := []byte{'"'}
	for i := range len(key) {
		out = quoted(out, key[i])
	}
	t.c.args(append(out, '"', ':', ' ')...)
	if t.types == isString {
		t.c.args('"')
	}
	t.begun, t.line, t.text = false, false, t.text[:0]
	t.state = taggedValue
	if t.f.valueOpen != "" {
		t.state = taggedOpen
	}
	return more
}

func (t *tagged) inValue(b byte) verdict {
	free, hit := t.ends.put(t.free[:0], b)
	t.free = free
	for _, b := range free {
		t.valueByte(b)
	}
	if hit < 0 {
		return more
	}
	if t.types == isString {
		t.c.args('"')
	} else {
		text := string(t.text)
		if t.f.lines {
			text = strings.TrimSuffix(text, "\n")
		}
		t.c.args(t.types.json(text)...)
	}
	t.state = taggedBody
	return more
}

// valueByte takes a byte of a value. A text goes out as it comes, without the line
// breaks that belong to the tags.
func (t *tagged) valueByte(b byte) {
	if t.f.lines && b == '\n' && !t.begun {
		t.begun = true
		return
	}
	t.begun = true
	if t.types != isString {
		t.text = append(t.text, b)
		return
	}
	if t.line {
		t.line = false
		t.c.args('\\', 'n')
	}
	if b == '\n' && t.f.lines {
		t.line = true
		return
	}
	t.c.args(quoted(nil, b)...)
}

// end hands on a value as far as it came, without what may be the beginning of its end.
func (t *tagged) end() {
	if t.state == taggedValue {
		t.c.args(t.text...)
	}
}

func qwen3Coder() *tagFormat {
	return &tagFormat{
		open: "<tool_call>", close: "</tool_call>", call: "<function=", callEnd: "</function>",
		param: "<parameter=", paramEnd: "</parameter>", lines: true,
	}
}

func minimaxM2() *tagFormat {
	return &tagFormat{
		open: "<minimax:tool_call>", close: "</minimax:tool_call>", call: "<invokename=", callEnd: "</invoke>",
		param: "<parametername=", paramEnd: "</parameter>", lines: true,
	}
}

func deepseekV32() *tagFormat {
	return &tagFormat{
		open: "<｜DSML｜function_calls>", close: "</｜DSML｜function_calls>",
		call: "<｜DSML｜invokename=", callEnd: "</｜DSML｜invoke>",
		param: "<｜DSML｜parametername=", paramEnd: "</｜DSML｜parameter>",
		key: func(text string) (string, kinds) { // "NAME" string="true"
			name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), `"`), `"`)
			switch {
			case strings.Contains(rest, `string="true"`):
				return name, isString
			case strings.Contains(rest, `string="false"`):
				return name, isAny
			}
			return name, 0
		},
	}
}

func glm() *tagFormat {
	return &tagFormat{
		open: "<tool_call>", close: "</tool_call>", callEnd: "</tool_call>",
		param: "<arg_key>", paramEnd: "</arg_value>", keyEnd: "</arg_key>", valueOpen: "<arg_value>",
	}
}
