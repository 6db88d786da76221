package role

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// TestConstraintCost: a form that costs too much is the client's fault, and too many of
// them at once are for another worker.
func TestConstraintCost(t *testing.T) {
	for err, want := range map[error]requestplane.Kind{
		engine.ErrConstraintCost: requestplane.KindInvalidArgument,
		engine.ErrQueueFull:      requestplane.KindOverloaded,
	} {
		if e, ok := RemoteError(fmt.Errorf("constraint: %w", err)).(*requestplane.RemoteError); !ok || e.Kind != want {
			t.Errorf("%v: %v, want kind %v", err, e, want)
		}
	}
}
