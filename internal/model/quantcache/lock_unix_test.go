//go:build unix

package quantcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestLock: one holder at a time, and no file left.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "x.weights")
	var wg sync.WaitGroup
	var holders, most int
	var mu sync.Mutex
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		holders += n
		most = max(most, holders)
	}
	for range 4 {
		wg.Go(func() {
			release, held, err := Lock(t.Context(), path)
			if err != nil || !held {
				t.Errorf("held %v, %v", held, err)
				return
			}
			count(1)
			count(-1)
			release()
		})
	}
	wg.Wait()
	if most != 1 {
		t.Errorf("%d holders at once", most)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	release, _, err := Lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errWaited)
	defer cancel()
	if _, _, err := Lock(ctx, path); !errors.Is(err, errWaited) {
		t.Errorf("err = %v, want the cause of the context", err)
	}
}

var errWaited = errors.New("waited")
