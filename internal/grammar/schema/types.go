package schema

// typeSet is a set of JSON types. Numbers are two, integers and the rest.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBool
	typeInteger
	typeFraction
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFraction
	allTypes   = typeObject<<1 - 1
)

func typeNamed(name string) (typeSet, bool) {
	switch name {
	case "null":
		return typeNull, true
	case "boolean":
		return typeBool, true
	case "integer":
		return typeInteger, true
	case "number":
		return typeNumber, true
	case "string":
		return typeString, true
	case "array":
		return typeArray, true
	case "object":
		return typeObject, true
	}
	return 0, false
}

// typeOf is the type of a value.
func typeOf(v *value) typeSet {
	switch v.kind {
	case kindNull:
		return typeNull
	case kindBool:
		return typeBool
	case kindString:
		return typeString
	case kindArray:
		return typeArray
	case kindObject:
		return typeObject
	}
	if d, ok := parseDecimal(v.text); ok && d.frac == "" {
		return typeInteger
	}
	return typeFraction
}
