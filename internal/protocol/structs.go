package protocol

import (
	"encoding"
	"reflect"
	"strings"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// The library copies each field of a struct to see whether it is empty, and lists the others,
// in memory of its own. These functions give the same bytes without that. They leave to the
// library what is no struct, list of structs or plain value.

// layout says how to encode a struct.
type layout struct{ fields []layoutField }

type layoutField struct {
	index int
	name  string
	form  form
	of    *layout // of formStruct, formPointer and formList
	zeroer
}

// form is how the value of a field is encoded.
type form int

const (
	formOther form = iota // by the library
	formBool
	formInt
	formUint
	formFloat32
	formFloat64
	formString
	formStruct
	formPointer // to a struct
	formList    // of structs
)

// zeroer says that a type has a method IsZero.
type zeroer bool

var (
	zeroes  = reflect.TypeFor[interface{ IsZero() bool }]()
	customs = []reflect.Type{
		reflect.TypeFor[msgpack.CustomEncoder](), reflect.TypeFor[msgpack.Marshaler](),
		reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.TextMarshaler](),
	}
	layouts  sync.Map   // *layout by reflect.Type; nil for those that the library encodes
	building sync.Mutex // held while layouts are made
)

// layoutOf returns the layout of a type, or nil if the library has to encode it.
func layoutOf(t reflect.Type) *layout {
	if l, ok := layouts.Load(t); ok {
		return l.(*layout)
	}
	building.Lock()
	defer building.Unlock()
	return buildLayout(t)
}

func buildLayout(t reflect.Type) *layout {
	if l, ok := layouts.Load(t); ok {
		return l.(*layout)
	}
	layouts.Store(t, (*layout)(nil)) // should it hold itself
	l := newLayout(t)
	layouts.Store(t, l)
	return l
}

func isCustom(t reflect.Type) bool {
	for _, c := range customs {
		if t.Implements(c) || reflect.PointerTo(t).Implements(c) {
			return true
		}
	}
	return false
}

func newLayout(t reflect.Type) *layout {
	if t.Kind() != reflect.Struct || isCustom(t) {
		return nil
	}
	l := &layout{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous, f.Type.Kind() == reflect.Interface, f.Tag.Get("msgpack") != "", options != "" && options != "omitempty" && options != "omitzero":
			return nil
		case !f.IsExported(), name == "-":
			continue
		case name == "":
			name = f.Name
		}
		field := layoutField{index: i, name: name, zeroer: zeroer(f.Type.Implements(zeroes))}
		field.form, field.of = formOf(f.Type)
		if f.Type.Kind() == reflect.Struct && field.of == nil && !bool(field.zeroer) {
			return nil // only the library knows whether it is empty
		}
		l.fields = append(l.fields, field)
	}
	return l
}

func formOf(t reflect.Type) (form, *layout) {
	if isCustom(t) {
		return formOther, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return formBool, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return formInt, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return formUint, nil
	case reflect.Float32:
		return formFloat32, nil
	case reflect.Float64:
		return formFloat64, nil
	case reflect.String:
		return formString, nil
	case reflect.Struct:
		if l := buildLayout(t); l != nil {
			return formStruct, l
		}
	case reflect.Pointer:
		if l := buildLayout(t.Elem()); l != nil {
			return formPointer, l
		}
	case reflect.Slice:
		if l := buildLayout(t.Elem()); l != nil {
			return formList, l
		}
	}
	return formOther, nil
}

// encode encodes a struct.
func (l *layout) encode(e *msgpack.Encoder, v reflect.Value) error {
	n := 0
	for i := range l.fields {
		if f := &l.fields[i]; !f.empty(v.Field(f.index)) {
			n++
		}
	}
	if err := e.EncodeMapLen(n); err != nil {
		return err
	}
	for i := range l.fields {
		f := &l.fields[i]
		value := v.Field(f.index)
		if f.empty(value) {
			continue
		}
		if err := e.EncodeString(f.name); err != nil {
			return err
		}
		if err := f.encode(e, value); err != nil {
			return err
		}
	}
	return nil
}

// encode encodes the value of a field that is not empty.
func (f *layoutField) encode(e *msgpack.Encoder, v reflect.Value) error {
	switch f.form {
	case formBool:
		return e.EncodeBool(v.Bool())
	case formInt:
		return e.EncodeInt(v.Int())
	case formUint:
		return e.EncodeUint(v.Uint())
	case formFloat32:
		return e.EncodeFloat32(float32(v.Float()))
	case formFloat64:
		return e.EncodeFloat64(v.Float())
	case formString:
		return e.EncodeString(v.String())
	case formStruct:
		return f.of.encode(e, v)
	case formPointer:
		return f.of.encode(e, v.Elem())
	case formList:
		if err := e.EncodeArrayLen(v.Len()); err != nil {
			return err
		}
		for i := range v.Len() {
			if err := f.of.encode(e, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case formOther:
	}
	return e.EncodeValue(v)
}

// empty reports whether a field is left out.
func (f *layoutField) empty(v reflect.Value) bool {
	if f.zeroer {
		return isNil(v) || v.Interface().(interface{ IsZero() bool }).IsZero()
	}
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return f.of.empty(v)
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.UnsafePointer, reflect.Invalid:
		return false
	default: // numbers, bool, pointers
		return v.IsZero()
	}
}

// empty reports whether all fields of a struct are left out.
func (l *layout) empty(v reflect.Value) bool {
	for i := range l.fields {
		if f := &l.fields[i]; !f.empty(v.Field(f.index)) {
			return false
		}
	}
	return true
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		return v.IsNil()
	default:
		return false
	}
}
