package role

import (
	"testing"

	"github.com/dynctl/dynctl/internal/protocol"
)

// The built-in engine would answer for an adapter without it.
func TestNoAdapters(t *testing.T) {
	term := &Term{Model: Model{Digest: "sum"}}
	for _, p := range []protocol.PreprocessedRequest{{Adapter: "tuned"}, {Adapter: "tuned", ModelSum: "sum"}, {ModelSum: "other"}} {
		if term.CheckRequest(&p) == nil {
			t.Errorf("%+v is taken", p)
		}
	}
	if err := term.CheckRequest(&protocol.PreprocessedRequest{ModelSum: "sum"}); err != nil {
		t.Error(err)
	}
}

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
