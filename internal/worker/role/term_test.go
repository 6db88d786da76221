package role

import "testing"

func TestCheckModel(t *testing.T) {
	term := &Term{Model: Model{Digest: "956ebf712e1f"}}
	for digest, ok := range map[string]bool{
		"956ebf712e1f": true,
		"":             true, // a call by hand
		"956ebf712e10": false,
		"956ebf":       false,
	} {
		if err := term.CheckModel(digest); (err == nil) != ok {
			t.Errorf("digest %q: %v", digest, err)
		}
	}
}
