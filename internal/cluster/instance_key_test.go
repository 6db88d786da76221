package cluster

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// Registrations as the documents print them, and as releases of Dynamo write them.
func TestReadInstance(t *testing.T) {
	text, err := os.ReadFile("testdata/instances.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name, Key, Endpoint, ID, Address, Unspoken string
		Value                                      json.RawMessage
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			i, err := ReadInstance(tc.Key, tc.Value)
			if err != nil || i.Of().String() != tc.Endpoint || i.InstanceID.String() != tc.ID || i.Transport.Address() != tc.Address {
				t.Fatalf("%+v, %v", i, err)
			}
			if why := i.Transport.Unspoken(); (why == "") != (tc.Unspoken == "") || !strings.Contains(why, tc.Unspoken) {
				t.Errorf("cannot be called: %q", why)
			}
			for _, q := range []Endpoint{{}, {Namespace: i.Namespace}, {Namespace: i.Namespace, Component: i.Component}, i.Of()} {
				if !q.Matches(i) || !slices.ContainsFunc(q.Prefixes(), func(p string) bool { return strings.HasPrefix(tc.Key, p) }) {
					t.Errorf("the query %q does not find it", q)
				}
			}
			if q := (Endpoint{Namespace: "other"}); slices.ContainsFunc(q.Prefixes(), func(p string) bool { return strings.HasPrefix(tc.Key, p) }) {
				t.Error("it is found in another namespace")
			}
		})
	}
}

func TestReadInstanceRefuses(t *testing.T) {
	const value = `{"namespace":"a","component":"b","endpoint":"c","instance_id":42,"transport":{"tcp":"h:1"}}`
	if i, err := ReadInstance("/services/a/b/c/2a", []byte(value)); err != nil {
		t.Fatalf("%+v, %v", i, err)
	}
	for key, value := range map[string]string{
		"/services/a/b/c/2b":        value, // another id
		"/services/a/b/d/2a":        value, // another endpoint
		"/services/a/b/c/xyz":       value, // no id
		"/services/a/b/-2a":         value, // no endpoint
		"/services/a/b/c":           value,
		"/services/a/b/c:2a":        value, // the colon is of other keys
		"instances/a/b/c-2a":        value,
		"/services/a/b/c/2a/x":      value,
		"v1/mdc/a/b/c/2a":           value,
		"v1/instances/a/b/c/2a/x":   value,
		"v1/instances/A/b/c/2a":     strings.Replace(value, `"a"`, `"A"`, 1), // no namespace
		"/services/a/b/c/2a#type":   value,
		"/services/a/b/c/2a#broken": `{"namespace":`,
	} {
		if i, err := ReadInstance(key, []byte(value)); err == nil {
			t.Errorf("%s: %+v", key, i)
		}
	}
	if i, err := ReadInstance("/services/a/b/c/2a", []byte(`{"type":"Model",`+value[1:])); err == nil {
		t.Errorf("a model: %+v", i)
	}
}
