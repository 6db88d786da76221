package cluster

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseSpeculative(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Speculative // with defaults
		back string      // what String says; empty: the text
	}{
		{"off", Speculative{Method: "off"}, ""},
		{"ngram", Speculative{"ngram", 5, 4, 2}, ""},
		{"ngram:3", Speculative{"ngram", 3, 4, 2}, ""},
		{"ngram:num_speculative_tokens=3", Speculative{"ngram", 3, 4, 2}, "ngram:3"},
		{"ngram:prompt_lookup_max=1", Speculative{"ngram", 5, 1, 1}, ""},
		{"ngram:prompt_lookup_min=6", Speculative{"ngram", 5, 6, 6}, ""},
		{"ngram:8,prompt_lookup_min=3", Speculative{"ngram", 8, 4, 3}, "ngram:num_speculative_tokens=8,prompt_lookup_min=3"},
		{"ngram:num_speculative_tokens=32,prompt_lookup_max=16,prompt_lookup_min=1", Speculative{"ngram", 32, 16, 1}, ""},
		{"", Speculative{}, ""},
	} {
		s, err := ParseSpeculative(tc.text)
		if err != nil {
			t.Errorf("%q: %v", tc.text, err)
			continue
		}
		if got := s.WithDefaults(); got != tc.want {
			t.Errorf("%q: %+v, want %+v", tc.text, got, tc.want)
		}
		if tc.back == "" {
			tc.back = tc.text
		}
		if s.String() != tc.back {
			t.Errorf("%q: says %q, want %q", tc.text, s.String(), tc.back)
		}
	}
	for text, want := range map[string]string{
		"eagle":                      `speculative: "eagle" is not off or ngram`,
		"off:3":                      "speculative: parameters without the method ngram",
		"ngram:":                     `speculative: num_speculative_tokens: "" is not a number from 1 to 32`,
		"ngram:0":                    `speculative: num_speculative_tokens: "0" is not a number from 1 to 32`,
		"ngram:many":                 `speculative: num_speculative_tokens: "many" is not a number from 1 to 32`,
		"ngram:3,4":                  `speculative: "4" is not num_speculative_tokens, prompt_lookup_max or prompt_lookup_min`,
		"ngram:lookup=3":             `speculative: "lookup" is not num_speculative_tokens, prompt_lookup_max or prompt_lookup_min`,
		"ngram:prompt_lookup_max":    `speculative: num_speculative_tokens: "prompt_lookup_max" is not a number from 1 to 32`,
		"ngram:prompt_lookup_max=17": `speculative: prompt_lookup_max: "17" is not a number from 1 to 16`,
		"ngram:prompt_lookup_max=2,prompt_lookup_min=3": "speculative: prompt_lookup_min: 3 is more than prompt_lookup_max, 2",
	} {
		if _, err := ParseSpeculative(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// What others wrote into a topology is checked as well, and nothing is not written.
func TestSpeculativeJSON(t *testing.T) {
	body, err := json.Marshal(EngineSpec{})
	if err != nil || string(body) != "{}" {
		t.Errorf("%s %v", body, err)
	}
	spec := EngineSpec{ITLTargetMS: 100, Speculative: Speculative{"ngram", 5, 4, 2}}
	if body, err = json.Marshal(spec); err != nil || !strings.Contains(string(body), `"prompt_lookup_min":2`) {
		t.Errorf("%s %v", body, err)
	}
	var back EngineSpec
	if err := json.Unmarshal(body, &back); err != nil || back != spec {
		t.Errorf("%+v %v", back, err)
	}
	for _, s := range []Speculative{{"ngram", -1, 0, 0}, {"ngram", 33, 0, 0}, {"ngram", 1, 17, 0}, {"ngram", 1, 2, 3}, {"", 1, 0, 0}, {"off", 0, 1, 0}} {
		if s.Validate() == nil {
			t.Errorf("%+v is valid", s)
		}
	}
}
