package schematest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema validates values, formats included.
type Schema struct {
	text string
	s    *jsonschema.Schema
}

// Compile reads a schema, which must be well-formed.
func Compile(t testing.TB, text string) *Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:schema", doc); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	s, err := c.Compile("mem:schema")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &Schema{text, s}
}

// Check returns what is wrong with a JSON text.
func (s *Schema) Check(text string) error {
	if !json.Valid([]byte(text)) {
		return errors.New("not JSON")
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.s.Validate(doc)
}

// Validate fails a test if a JSON text is not valid.
func (s *Schema) Validate(t testing.TB, text string) {
	t.Helper()
	if err := s.Check(text); err != nil {
		t.Fatalf("schema %s\ngenerated %q\n%v", s.text, text, err)
	}
}
