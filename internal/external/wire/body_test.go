package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/external"
)

func TestClientBodyKeepsBytes(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"order and spelling": {
			`{ "b" : 9007199254740993, "a":1.0, "\u006dodel":"x", "u":"\u00e9\u003c", "o":{ "z":1, "z":2 } }`,
			`{"b":9007199254740993,"a":1.0,"\u006dodel":"m","u":"\u00e9\u003c","o":{ "z":1, "z":2 }}`,
		},
		"no model":      {`{}`, `{"model":"m"}`},
		"control":       {`{"rid":"x","a":1,"BOOTSTRAP_ROOM":2}`, `{"a":1,"model":"m"}`},
		"escaped":       {`{"r\u0069d":"x"}`, `{"model":"m"}`},
		"nested":        {`{"vllm_xargs":{"kv_transfer_params":1, "n": 2},"model":"x"}`, `{"vllm_xargs":{"n":2},"model":"m"}`},
		"nested, clean": {`{"vllm_xargs":{ "n": 2},"extra_args":null,"model":"x"}`, `{"vllm_xargs":{ "n": 2},"extra_args":null,"model":"m"}`},
		"others twice":  {`{"x":1,"x":2,"model":"y"}`, `{"x":1,"x":2,"model":"m"}`},
	} {
		b, err := ClientBody([]byte(test.body), "m")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := string(b.Bytes()); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	for _, body := range []string{
		``, `1`, `[]`, `{`, `{"a":1,}`, `{"a":1} x`, `{"model":1,"MODEL":2}`, `{"n":1,"n":1}`, `{"vllm_xargs":3}`, `{"vllm_xargs":{},"vllm_xargs":{}}`,
		strings.Repeat(`{"a":`, 300) + `1` + strings.Repeat(`}`, 300),
	} {
		if b, err := ClientBody([]byte(body), "m"); err == nil {
			t.Errorf("%.40s was taken: %s", body, b.Bytes())
		}
	}
}

func TestAskUsage(t *testing.T) {
	for body, want := range map[string]string{
		`{"stream":true}`:         `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream_options":null}`: `{"stream_options":{"include_usage":true}}`,
		`{"stream_options":{"include_usage":false,"x": 1.0},"y":"z"}`: `{"stream_options":{"include_usage":true,"x":1.0},"y":"z"}`,
	} {
		b, err := ParseBody([]byte(body))
		if err == nil {
			err = askUsage(b)
		}
		if err != nil || string(b.Bytes()) != want {
			t.Errorf("%s becomes %s, %v", body, b.Bytes(), err)
		}
	}
	for _, body := range []string{`{"stream_options":[]}`, `{"stream_options":{"include_usage":false,"include_usage":true}}`} {
		b, err := ParseBody([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := askUsage(b); err == nil {
			t.Errorf("%s was taken", body)
		}
	}
}

func TestObject(t *testing.T) {
	var o Object
	o.Text("a\"", "é\n")
	o.Int("i", -3)
	o.Uint("u", 1<<64-1)
	o.Float("f", 0.1)
	o.Bool("b", true)
	o.IDs("ids", []uint32{1, 1<<32 - 1})
	o.IDs("none", nil)
	o.Raw("r", []byte(`{"x":1.0}`))
	want := `{"a\"":"é\n","i":-3,"u":18446744073709551615,"f":0.1,"b":true,"ids":[1,4294967295],"none":[],"r":{"x":1.0}}`
	if got := string(o.Bytes()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var empty Object
	if got := string(empty.Bytes()); got != "{}" {
		t.Errorf("empty: %s", got)
	}
}

func FuzzClientBody(f *testing.F) {
	for _, s := range []string{
		`{"model":"x","messages":[{"role":"user","content":"\ud83d\ude00"}],"stream":true,"stream_options":{}}`, `{"rid":1,"r\u0069d":2,"Rid":3}`,
		`{"vllm_xargs":{"bootstrap_x":1}}`, `{"":{}}`, "{\"\xff\":1}", `{"a":1e999}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := ClientBody(in, "m")
		if err != nil {
			return
		}
		out := b.Bytes()
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q becomes %q: %v", in, out, err)
		}
		for name := range after {
			if external.Controls(strings.ToLower(name)) {
				t.Errorf("%q keeps %q", in, name)
			}
		}
		if string(after["model"]) != `"m"` {
			t.Errorf("%q has the model %s", in, after["model"])
		}
		if err := json.Unmarshal(in, &before); err != nil {
			t.Fatalf("%q was taken, and is not JSON: %v", in, err)
		}
		for name, raw := range before {
			if external.Controls(strings.ToLower(name)) || name == "model" || name == "vllm_xargs" || name == "extra_args" || name == "custom_params" {
				continue
			}
			if string(after[name]) != string(raw) {
				t.Errorf("%q: %q became %q", in, raw, after[name])
			}
		}
		again, err := ClientBody(out, "m")
		if err != nil || string(again.Bytes()) != string(out) {
			t.Errorf("%q is not the same when it is edited again: %v", out, err)
		}
		_ = askUsage(b)
	})
}
