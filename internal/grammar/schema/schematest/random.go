package schematest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// Random makes a schema, with definitions and references to them.
func Random(r *rand.Rand) (string, error) {
	text, err := json.Marshal(map[string]any{
		"$defs": map[string]any{"d0": randomSchema(r, 2), "d1": randomSchema(r, 1)},
		"anyOf": []any{randomSchema(r, 3)},
	})
	return string(text), err
}

// randomSchema makes schemas of all supported keywords, some contradictory.
func randomSchema(r *rand.Rand, depth int) any {
	kinds := 12
	if depth <= 0 {
		kinds = 6
	}
	switch r.IntN(kinds) {
	case 0:
		return randomInteger(r)
	case 1:
		s := map[string]any{"type": "number"}
		if r.IntN(2) == 0 {
			s["minimum"] = json.Number(fmt.Sprintf("%.*f", r.IntN(4), r.Float64()*200-150))
		}
		if r.IntN(2) == 0 {
			s["exclusiveMaximum"] = json.Number(fmt.Sprintf("%.*f", r.IntN(4), r.Float64()*200-50))
		}
		if r.IntN(4) == 0 {
			s["multipleOf"] = json.Number([]string{"0.5", "0.01", "3", "1.2"}[r.IntN(4)])
		}
		return s
	case 2:
		return randomString(r)
	case 3:
		return map[string]any{"type": []string{"null", "boolean"}}
	case 4:
		return map[string]any{"enum": []any{"x", 1, 2.5, nil, []any{1, "é\n"}, map[string]any{"k\"": true}}[r.IntN(6):]}
	case 5:
		return []any{true, map[string]any{}, map[string]any{"const": "c"}, map[string]any{"type": "boolean"}}[r.IntN(4)]
	case 6, 7:
		return randomObject(r, depth)
	case 8:
		return randomArray(r, depth)
	case 9:
		return map[string]any{"anyOf": []any{randomSchema(r, depth-1), randomSchema(r, depth-1)}}
	case 10:
		return map[string]any{"allOf": []any{randomSchema(r, depth-1), randomSchema(r, depth-1)}}
	default:
		if r.IntN(2) == 0 {
			return map[string]any{"$ref": "#/$defs/d" + fmt.Sprint(r.IntN(2))}
		}
		return map[string]any{"oneOf": []any{randomSchema(r, depth-1), randomSchema(r, depth-1)}}
	}
}

func randomInteger(r *rand.Rand) any {
	s := map[string]any{"type": "integer"}
	if r.IntN(2) == 0 {
		s["minimum"] = r.IntN(3000) - 1500
	}
	if r.IntN(2) == 0 {
		s["maximum"] = r.IntN(6000) - 1500
	}
	if r.IntN(3) == 0 {
		s["multipleOf"] = 1 + r.IntN(30)
	}
	return s
}

func randomString(r *rand.Rand) any {
	s := map[string]any{"type": "string"}
	switch r.IntN(4) {
	case 0:
		low := r.IntN(40)
		s["minLength"], s["maxLength"] = low, low+r.IntN(60)
	case 1:
		s["pattern"] = []string{"^a+b?$", "x|y$", "[^\\w]{2}", "^\\p{L}{1,3}", "\"\\\\", "^[\\s\\S]{3}$"}[r.IntN(6)]
		if r.IntN(2) == 0 {
			s["minLength"] = r.IntN(6)
		}
		if r.IntN(2) == 0 {
			s["maxLength"] = 4 + r.IntN(20)
		}
	case 2:
		s["format"] = []string{"date", "date-time", "time", "duration", "uuid", "ipv4", "ipv6", "hostname", "email", "uri"}[r.IntN(10)]
	}
	return s
}

func randomObject(r *rand.Rand, depth int) any {
	s := map[string]any{}
	if r.IntN(5) > 0 {
		s["type"] = "object"
	}
	properties := map[string]any{}
	var required []string
	for range r.IntN(5) {
		name := []string{"a", "ab", "b", "é", "k\"", "kind"}[r.IntN(6)]
		properties[name] = randomSchema(r, depth-1)
		if name == "kind" {
			properties[name] = map[string]any{"const": r.IntN(3)}
		}
		if r.IntN(2) == 0 {
			required = append(required, name)
		}
	}
	s["properties"] = properties
	if len(required) > 0 {
		unique := required[:0]
		seen := map[string]bool{}
		for _, name := range required {
			if !seen[name] {
				unique = append(unique, name)
			}
			seen[name] = true
		}
		s["required"] = unique
	}
	switch r.IntN(4) {
	case 0:
		s["additionalProperties"] = false
	case 1:
		s["additionalProperties"] = randomSchema(r, depth-2)
	}
	if r.IntN(5) == 0 {
		s["anyOf"] = []any{randomSchema(r, depth-1), map[string]any{"required": []string{"a"}}}
	}
	return s
}

func randomArray(r *rand.Rand, depth int) any {
	s := map[string]any{"type": "array"}
	if r.IntN(3) > 0 {
		s["items"] = randomSchema(r, depth-1)
	}
	if r.IntN(3) == 0 {
		s["prefixItems"] = []any{randomSchema(r, depth-1), randomSchema(r, depth-1)}
	}
	if r.IntN(2) == 0 {
		s["minItems"] = r.IntN(4)
	}
	if r.IntN(2) == 0 {
		s["maxItems"] = r.IntN(5)
	}
	return s
}
