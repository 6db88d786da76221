package output

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestIdentifiersHaveAHexadecimalForm(t *testing.T) {
	for in, want := range map[string]string{
		`{"instance_id":7587869251842,"name":"x"}`:     `{"instance_id":7587869251842,"instance_id_hex":"0x6e6b0405902","name":"x"}`,
		`{"id":18446744073709551615}`:                  `{"id":18446744073709551615,"id_hex":"0xffffffffffffffff"}`,
		`{"removed":[1,16],"epoch":0}`:                 `{"removed":[1,16],"removed_hex":["0x1","0x10"],"epoch":0,"epoch_hex":"0x0"}`,
		`{"id":"node-1","removed":["a"],"epoch":null}`: `{"id":"node-1","removed":["a"],"epoch":null}`,
		`{"removed":[],"id":1.5,"n":{"id":-1}}`:        `{"removed":[],"id":1.5,"n":{"id":-1}}`,
		`["id",1,"\"id\":1"]`:                          `["id",1,"\"id\":1"]`,
	} {
		if got := string(withHex([]byte(in))); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

// What a program reads keeps every bit: no integer that uses them all is without a text. This
// fills all fields of what commands print with the largest values.
func TestNoIdentifierIsLeftOut(t *testing.T) {
	for _, v := range []any{&cluster.Worker{}, &cluster.Lease{}, &cluster.KVEvent{}, &cluster.KVCache{}, &cluster.Node{}, &cluster.RouterDecision{}} {
		fill(reflect.ValueOf(v).Elem())
		var b bytes.Buffer
		if err := WriteJSON(&b, v, false); err != nil {
			t.Fatal(err)
		}
		var doc any
		d := json.NewDecoder(&b)
		d.UseNumber()
		if err := d.Decode(&doc); err != nil {
			t.Fatalf("%T: %v", v, err)
		}
		lone(t, doc)
	}
}

// fill sets every id and hash in v. Counters stay small.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			f := v.Field(i)
			switch {
			case !f.CanSet() || v.Type() == reflect.TypeFor[cluster.WorkerStats]():
			case f.Kind() == reflect.Uint64 && (f.Type() == reflect.TypeFor[cluster.InstanceID]() || strings.Contains(name, "Hash") || strings.Contains(name, "Epoch")):
				f.SetUint(math.MaxUint64)
			default:
				fill(f)
			}
		}
	}
}

// lone reports numbers beyond 2^53 whose object has no text for them.
func lone(t *testing.T, doc any) {
	switch d := doc.(type) {
	case map[string]any:
		for k, v := range d {
			if n, ok := v.(json.Number); ok && len(n) > 16 && d[k+"_hex"] != "0xffffffffffffffff" {
				t.Errorf("%s: %s has no text: %v", k, n, d[k+"_hex"])
			}
			lone(t, v)
		}
	case []any:
		for _, v := range d {
			lone(t, v)
		}
	}
}
