package schema

import (
	"net/url"
	"strings"
)

// What members of a schema hold, as far as it is not a schema or a list of schemas.
var (
	// namedSchemas hold schemas by names that are not keywords.
	namedSchemas = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true, "dependentSchemas": true}
	// data holds values, which may look like schemas.
	data = map[string]bool{"const": true, "enum": true, "default": true, "examples": true, "example": true}
)

// absolute makes references start at the root of the document. Those in a schema with an $id
// of its own start there (JSON Schema 2020-12 core, 8.2.1 and 9.3: embedded resources).
func absolute(v *value, base string) {
	if v.kind == kindArray {
		for _, item := range v.items {
			absolute(item, base)
		}
		return
	}
	if v.kind != kindObject {
		return
	}
	if id := v.get("$id"); id != nil && id.kind == kindString && v.parent != nil {
		base = v.pointer()
	}
	for _, m := range v.members {
		switch {
		case m.name == "$ref" && m.v.kind == kindString && strings.HasPrefix(m.v.text, "#"):
			m.v.text = "#" + base + m.v.text[1:]
		case data[m.name]:
		case namedSchemas[m.name] && m.v.kind == kindObject:
			for _, named := range m.v.members {
				absolute(named.v, base)
			}
		default:
			absolute(m.v, base)
		}
	}
}

// pointer returns where a value stands, as a JSON pointer in a URI fragment.
func (v *value) pointer() string {
	if v.parent == nil {
		return ""
	}
	return v.parent.pointer() + "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(v.key))
}
