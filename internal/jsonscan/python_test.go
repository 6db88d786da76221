package jsonscan

import "testing"

func TestFromPython(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": [0.0, Infinity], "b": -Infinity, "c": NaN}`: `{"a": [0.0, 1e308], "b": -1e308, "c": null}`,
		`{"NaN": "Infinity \\\"NaN", "x": NaN}`:            `{"NaN": "Infinity \\\"NaN", "x": null}`,
		`"NaN\`:                                            `"NaN\`,
		`{"a": 1}`:                                         `{"a": 1}`,
		`{"a": Inf}`:                                       `{"a": Inf}`,
		`NaN`:                                              `null`,
	} {
		if got := string(FromPython([]byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
