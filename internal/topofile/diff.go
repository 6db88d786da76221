package topofile

import (
	"reflect"

	"github.com/dynctl/dynctl/internal/config"
)

// Change is one field that differs between two files. A nil value is a field that is at
// its default.
type Change struct {
	Path string `json:"field"`
	From any    `json:"from"`
	To   any    `json:"to"`
}

// Diff lists what differs, in the order of [Fields], then in pools and attached servers. The namespaces are not compared.
func Diff(from, to File) []Change {
	out := []Change{}
	for _, fd := range all(from, to) {
		a, b := fd.Get(from), fd.Get(to)
		if fd.Path == "namespace" || reflect.DeepEqual(a, b) {
			continue
		}
		out = append(out, Change{fd.Path, plain(a), plain(b)})
	}
	return out
}

// plain is a value as JSON has it.
func plain(v any) any {
	if v == nil {
		return nil
	}
	return config.Value{Value: v}.Plain()
}
