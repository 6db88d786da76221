package wire

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/jsonscan"
)

// bodyLimits bound the bodies that are taken apart.
var bodyLimits = jsonscan.Limits{Depth: 256, Values: 8 << 20}

// Body is a JSON object taken apart into its members, each of which keeps its bytes and its
// place.
type Body struct {
	members []member
}

type member struct {
	key  []byte // as it stands, quotes included
	name string
	raw  json.RawMessage
}

// ParseBody takes an object apart. The error is for the client.
func ParseBody(b []byte) (*Body, error) {
	c := jsonscan.New(b, bodyLimits)
	var body Body
	err := c.Object(func(key []byte) error {
		name, err := jsonscan.Unquote(key)
		if err != nil {
			return err
		}
		raw, err := c.Raw()
		body.members = append(body.members, member{key, name, raw})
		return err
	})
	if err == nil {
		err = c.End()
	}
	if err != nil {
		return nil, Invalid("the request's body: %v", err)
	}
	return &body, nil
}

// Get returns the value of a member; nil if there is none. Of several with one name, that is
// the last one, as for most readers: see [Body.Single].
func (b *Body) Get(name string) json.RawMessage {
	for i := len(b.members) - 1; i >= 0; i-- {
		if b.members[i].name == name {
			return b.members[i].raw
		}
	}
	return nil
}

// Single refuses a body that has one of the names more than once, in whatever case of letters:
// readers differ in which one they take.
func (b *Body) Single(names ...string) error {
	for _, name := range names {
		n := 0
		for _, m := range b.members {
			if strings.EqualFold(m.name, name) {
				n++
			}
		}
		if n > 1 {
			return Invalid("%s: given more than once", name)
		}
	}
	return nil
}

// Set replaces the value of a member, or appends one.
func (b *Body) Set(name string, raw json.RawMessage) {
	for i := range b.members {
		if b.members[i].name == name {
			b.members[i].raw = raw
			return
		}
	}
	b.members = append(b.members, member{quote(name), name, raw})
}

// Add appends the members of another object, each in its bytes.
func (b *Body) Add(object []byte) error {
	other, err := ParseBody(object)
	if err != nil {
		return err
	}
	b.members = append(b.members, other.members...)
	return nil
}

// Drop removes members for which the name, in lower case, is to be dropped.
func (b *Body) Drop(drop func(name string) bool) (dropped bool) {
	kept := b.members[:0:0]
	for _, m := range b.members {
		if !drop(strings.ToLower(m.name)) {
			kept = append(kept, m)
		}
	}
	dropped = len(kept) != len(b.members)
	b.members = kept
	return dropped
}

// Clone returns a copy that can be changed by itself.
func (b *Body) Clone() *Body { return &Body{append([]member(nil), b.members...)} }

// Bytes returns the object.
func (b *Body) Bytes() []byte {
	size := 2
	for _, m := range b.members {
		size += len(m.key) + len(m.raw) + 2
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	for i, m := range b.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.key...), ':'), m.raw...)
	}
	return append(out, '}')
}

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		panic("a string that JSON cannot have: " + err.Error())
	}
	return b
}

// Text returns a string as JSON.
func Text(s string) json.RawMessage { return quote(s) }

// IsTrue reports whether a value is true; absent and null are not.
func IsTrue(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("true")) }

// IsNull reports whether a value is absent or null.
func IsNull(raw json.RawMessage) bool {
	b := bytes.TrimSpace(raw)
	return len(b) == 0 || bytes.Equal(b, []byte("null"))
}

// nested are members with further ones that engines take as their own.
var nested = []string{"vllm_xargs", "extra_args", "custom_params"}

// ClientBody takes a client's request for the OpenAI API apart and removes what controls
// servers. The model is replaced by the name that the server knows.
func ClientBody(b []byte, model string) (*Body, error) {
	body, err := ParseBody(b)
	if err != nil {
		return nil, err
	}
	if err := body.Single("model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens", "min_completion_tokens", "n", "prompt"); err != nil {
		return nil, err
	}
	body.Drop(external.Controls)
	for _, name := range nested {
		if err := body.Single(name); err != nil {
			return nil, err
		}
		raw := body.Get(name)
		if IsNull(raw) {
			continue
		}
		inner, err := ParseBody(raw)
		if err != nil {
			return nil, Invalid("%s: not an object", name)
		}
		if inner.Drop(external.Controls) {
			body.Set(name, inner.Bytes())
		}
	}
	body.Set("model", Text(model))
	return body, nil
}
