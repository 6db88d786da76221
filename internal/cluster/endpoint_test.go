package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"dyn://dynamo.backend.generate":      {"dynamo", "backend", "generate"},
		"dynamo.backend.generate":            {"dynamo", "backend", "generate"},
		"dynamo/backend/generate":            {"dynamo", "backend", "generate"},
		"dyn://dynamo/backend.generate":      {"dynamo", "backend", "generate"},
		"dyn://dynamo.backend/generate":      {"dynamo", "backend", "generate"},
		"vllm-agg.backend.clear_kv_blocks":   {"vllm-agg", "backend", "clear_kv_blocks"},
		"parent.child.worker.generate":       {"parent.child", "worker", "generate"},
		"dyn://a/b.c/worker/generate":        {"a.b.c", "worker", "generate"},
		"0-9.a_b.Generate2":                  {"0-9", "a_b", "Generate2"},
		EndpointScheme + "dyn.dyn.dyn":       {"dyn", "dyn", "dyn"},
		"services.dynamo.decode.kv_events":   {"services.dynamo", "decode", "kv_events"},
		"dyn://ns." + long("c") + "." + "ep": {"ns", long("c"), "ep"},
	} {
		got, err := ParseEndpoint(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v %v, want %+v", text, got, err, want)
		}
	}
	// The reference guesses a namespace NS, a component C and an endpoint E for parts that
	// are not there, and takes names that no key can hold.
	for _, bad := range []string{
		"", "dyn://", "generate", "backend.generate", "dyn://backend.generate", "a..generate", ".a.b", "a.b.", "a/b/", "/a/b", "a.b.c.",
		"Dynamo.backend.generate", "dynamo.Backend.generate", "dynamo.backend.gen erate", "dynamo.backend.gen:erate",
		"dyn:/a.b.c", "dyn:a.b.c", "http://a.b.c", "DYN://a.b.c", "dyn://dyn://a.b.c", "a.b.c\n", "a.b.é", "a.*.c", "a.b.>",
	} {
		if e, err := ParseEndpoint(bad); !errors.Is(err, ErrName) || e != (Endpoint{}) {
			t.Errorf("%q: %+v, error %v", bad, e, err)
		}
	}
}

func long(s string) string { return strings.Repeat(s, 300) }

func TestParseEndpointQuery(t *testing.T) {
	const services = "/services/"
	for _, tc := range []struct {
		text   string
		want   Endpoint
		prefix string
		form   string
	}{
		{"", Endpoint{}, services, ""},
		{"dynamo", Endpoint{Namespace: "dynamo"}, services + "dynamo/", "dyn://dynamo/"},
		{"dyn://dynamo", Endpoint{Namespace: "dynamo"}, services + "dynamo/", "dyn://dynamo/"},
		{"dynamo/", Endpoint{Namespace: "dynamo"}, services + "dynamo/", "dyn://dynamo/"},
		{"a.b/", Endpoint{Namespace: "a.b"}, services + "a.b/", "dyn://a.b/"},
		{"dynamo.decode", Endpoint{Namespace: "dynamo", Component: "decode"}, services + "dynamo/decode/", "dyn://dynamo/decode/"},
		{"dynamo/decode", Endpoint{Namespace: "dynamo", Component: "decode"}, services + "dynamo/decode/", "dyn://dynamo/decode/"},
		{"dyn://a.b/decode/", Endpoint{Namespace: "a.b", Component: "decode"}, services + "a.b/decode/", "dyn://a.b/decode/"},
		{"dyn://dynamo.decode.generate", Endpoint{"dynamo", "decode", "generate"}, services + "dynamo/decode/generate/", "dyn://dynamo.decode.generate"},
		{"a/b/c/d", Endpoint{"a.b", "c", "d"}, services + "a.b/c/d/", "dyn://a.b.c.d"},
	} {
		got, err := ParseEndpointQuery(tc.text)
		if err != nil || got != tc.want || got.Prefix() != tc.prefix || got.String() != tc.form {
			t.Errorf("%q: %+v %v, prefix %s, form %s", tc.text, got, err, got.Prefix(), got)
		}
	}
	for _, bad := range []string{"dyn://", "/", "//", ".", "a.", ".a", "a//", "a/b/c/", "a..b/", "A", "a.B", "a/B/", "a b", "a.b.c.", "a/b/c/d/"} {
		if e, err := ParseEndpointQuery(bad); !errors.Is(err, ErrName) || e != (Endpoint{}) {
			t.Errorf("%q: %+v, error %v", bad, e, err)
		}
	}
}

func TestEndpointMatches(t *testing.T) {
	inst := Instance{Namespace: "a.b", Component: "decode", Endpoint: "generate"}
	for text, want := range map[string]bool{
		"": true, "a.b/": true, "a.b/decode/": true, "a.b.decode.generate": true,
		"a": false, "a.b": false, "a.b/prefill/": false, "a.b.decode.generate2": false, "a.b.decode.gen": false,
	} {
		q, err := ParseEndpointQuery(text)
		if err != nil || q.Matches(inst) != want || strings.HasPrefix(inst.Key(), q.Prefix()) != want {
			t.Errorf("%q: matches %t, prefix %s, want %t (%v)", text, q.Matches(inst), q.Prefix(), want, err)
		}
	}
	if got := inst.Of(); got != (Endpoint{"a.b", "decode", "generate"}) {
		t.Errorf("got %+v", got)
	}
}

// What is read writes itself in a form that reads as the same, and is part of a key that
// no other name shares.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"", "dyn://a.b.c", "a/b.c", "a.b/", "a", "a.b", "dyn://a/b/", "a.b.c.d.e", "..", "//", "dyn://dyn://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseEndpointQuery(text)
		if err != nil {
			if !errors.Is(err, ErrName) || q != (Endpoint{}) {
				t.Fatalf("%q: %+v %v", text, q, err)
			}
		} else if back, err := ParseEndpointQuery(q.String()); err != nil || back != q {
			t.Fatalf("%q is %+v, writes itself %s and reads back %+v %v", text, q, q, back, err)
		}
		e, err := ParseEndpoint(text)
		if err != nil {
			return
		}
		if e != q {
			t.Fatalf("%q is the endpoint %+v and the query %+v", text, e, q)
		}
		key := InstanceKey(e.Namespace, e.Component, e.Name, 0x1f)
		parts := strings.Split(strings.TrimPrefix(key, "/services/"), "/")
		if len(parts) != 4 || parts[0] != e.Namespace || parts[1] != e.Component || parts[2] != e.Name || parts[3] != "1f" {
			t.Fatalf("%q has the key %s", text, key)
		}
	})
}
