package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// A burst of changes makes a few steps, and the first change after a pause makes one at once.
func TestSupervisorFollowsBurstsInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := store.NewMemory(nil)
		defer mem.Close()
		prefix := cluster.AssignmentPrefix(cluster.DefaultNamespace)
		assignments, err := store.WatchPrefix(t.Context(), mem, prefix, store.DecodeJSON[cluster.Assignment], testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		s := &supervisor{a: &Agent{nodeID: "id-1"}, assignments: assignments} // no assignment is for it
		defer s.close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		write := func(i int) {
			as := cluster.Assignment{Name: cluster.WorkerName(i), Node: "id-2"}
			if _, err := store.PutJSON(ctx, mem, prefix+as.Name, as); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(followPauseMax)
		synctest.Wait()
		before := s.follows.Load()
		write(1)
		synctest.Wait()
		if n := s.follows.Load() - before; n != 1 {
			t.Errorf("%d steps at once after a change, want 1", n)
		}
		const changes = 100
		for i := range changes {
			time.Sleep(time.Millisecond)
			write(2 + i)
		}
		time.Sleep(followPauseMax)
		synctest.Wait()
		if n := s.follows.Load() - before; n < 2 || n > 2+changes*int64(time.Millisecond)/int64(followPause) {
			t.Errorf("%d steps for %d changes in as many milliseconds", n, changes)
		}
	})
}
