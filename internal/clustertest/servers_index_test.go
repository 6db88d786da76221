package clustertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
)

// index returns what the one frontend knows of the cache of a server's worker, and how many full
// blocks the prompt of a text has; text may be empty.
func (c *Cluster) index(s *simulator, model, text string) (w cluster.KVIndexWorker, blocks int) {
	c.t.Helper()
	known, err := c.Client.KVIndexes(c.t.Context(), c.Watch.View(), protocol.KVIndexRequest{Model: model, Text: text})
	if err != nil || len(known) != 1 {
		return w, 0
	}
	for _, w := range known[0].Workers {
		if w.Worker == c.workerOf(s) {
			return w, known[0].PromptBlocks
		}
	}
	return w, 0
}

// hears sends a server new prompts until the frontend knows all blocks of one, and so those
// that it heard before: what a server publishes before it has the node's subscription, nobody hears. It returns how many prompts it
// sent.
func (c *Cluster) hears(s *simulator) int {
	c.t.Helper()
	end := time.Now().Add(patience.Soon)
	for i := 0; time.Now().Before(end); i++ {
		text := fmt.Sprintf("%d: %s", i, strings.Repeat("hear ", 100))
		if _, err := c.Complete(c.t.Context(), Body{"prompt": text, "max_tokens": 4, "nvext": Body{"decode_worker_id": c.workerOf(s)}}); err != nil {
			c.t.Fatal(err)
		}
		for wait := time.Now().Add(time.Second); time.Now().Before(wait); time.Sleep(10 * time.Millisecond) {
			if w, blocks := c.index(s, c.Model, text); blocks > 0 && w.Overlap == blocks {
				return i + 1
			}
		}
	}
	c.t.Fatalf("never: the frontend knows blocks of %s", s.spec.URL())
	return 0
}
