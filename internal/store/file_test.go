package store_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

func TestFile(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return openFile(t, t.TempDir()) })
}

func openFile(t *testing.T, dir string) *store.File {
	t.Helper()
	s, err := store.NewFile(store.FileConfig{Dir: dir}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
