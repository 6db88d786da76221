package kv

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/store"
)

// noStore is out of reach.
type noStore struct{ store.Store }

func (noStore) List(context.Context, string) ([]store.KV, store.Revision, error) {
	return nil, 0, store.ErrUnavailable
}

// A path that could not be looked for has failed, and says why.
func TestPathWithoutStore(t *testing.T) {
	ps := &Peers{p: &Plane{cfg: Config{Store: noStore{}}}}
	if err := ps.TestPath(t.Context(), "worker-2"); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "worker-2") {
		t.Errorf("got %v", err)
	}
}
