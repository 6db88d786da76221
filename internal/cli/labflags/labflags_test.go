package labflags

import (
	"reflect"
	"testing"

	"github.com/spf13/pflag"
)

// What one program was given arrives at the other, and nothing that was not given.
func TestArgs(t *testing.T) {
	for _, shared := range []Shared{&Simulate{}, &Size{}} {
		given := pflag.NewFlagSet("", pflag.ContinueOnError)
		shared.Add(given)
		given.String("own", "", "")
		names := Names(shared)
		if args := Args(given, names); args != nil {
			t.Errorf("%T: %v without a flag", shared, args)
		}
		values := map[string]string{"string": "a b=--c", "int": "7", "float64": "0.25", "bool": "true", "uint64": "18446744073709551615", "duration": "1m1.5s", "stringArray": "a,b c"}
		given.VisitAll(func(fl *pflag.Flag) {
			if err := given.Set(fl.Name, values[fl.Value.Type()]); err != nil {
				t.Fatal(err)
			}
		})
		arrived := reflect.New(reflect.TypeOf(shared).Elem()).Interface().(Shared)
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		arrived.Add(fs)
		if err := fs.Parse(Args(given, names)); err != nil || fs.NArg() > 0 {
			t.Fatal(err, fs.Args())
		}
		if !reflect.DeepEqual(arrived, shared) {
			t.Errorf("%+v, want %+v", arrived, shared)
		}
		v := reflect.ValueOf(arrived).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%T: no flag sets %s", shared, v.Type().Field(i).Name)
			}
		}
	}
}
