package live

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

// All bytes but the values that change stay, in any form of the object.
func TestAmend(t *testing.T) {
	for in, want := range map[string]string{
		`{"prefill":1,"x":{"prefill":7}}`:                        `{"prefill":2,"x":{"prefill":7},"decode":3}`,
		"{ \"a\" : [1 ,2],\n\"decode\" : 10 , \"prefill\":0 }\n": "{ \"a\" : [1 ,2],\n\"decode\" : 3 , \"prefill\":2 ,\"\":0}\n",
		`{}`: `{"prefill":2,"decode":3}`,
	} {
		want = strings.Replace(want, `,"":0`, "", 1)
		got, err := amend([]byte(in), []field{{"prefill", 2}, {"decode", 3}})
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", in, got, err, want)
		}
	}
	for _, bad := range []string{``, `[]`, `1`, `{`, `{"a"`, `{"a":}`, `{"a":1,}`} {
		if got, err := amend([]byte(bad), []field{{"prefill", 2}}); err == nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

func FuzzAmend(f *testing.F) {
	f.Add([]byte(`{"prefill":1,"x":{"prefill":7},"d":"\u00e9"}`))
	f.Add([]byte(`{ "decode" :null, "decode":[{}], "":2 }`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var before map[string]json.RawMessage
		if json.Unmarshal(in, &before) != nil || before == nil {
			return
		}
		out, err := amend(in, []field{{"prefill", 2}, {"decode", "x"}})
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q: %q: %v", in, out, err)
		}
		before["prefill"], before["decode"] = []byte(`2`), []byte(`"x"`)
		same := maps.EqualFunc(before, after, func(a, b json.RawMessage) bool { return string(a) == string(b) })
		if !same {
			t.Errorf("%q: %q", in, out)
		}
	})
}
