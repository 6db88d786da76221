package clustertest

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Set changes run-time settings, as dynctl set does.
func (c *Cluster) Set(settings map[string]any) {
	c.t.Helper()
	for name, value := range settings {
		c.Insist(func(ctx context.Context) error { return c.Client.PutSetting(ctx, name, value) })
	}
}

// Ways counts the prompts that the decode workers of the first node got in each way of
// a remote prefill; those they prefilled themselves count under "".
func (c *Cluster) Ways() map[protocol.PrefillWay]int {
	c.t.Helper()
	out := map[protocol.PrefillWay]int{}
	series := regexp.MustCompile(`(?m)^` + metrics.ComponentPrefills + `\{.*way="(\w*)",where="(\w+)".*\} (\d+)`)
	for _, m := range series.FindAllStringSubmatch(c.Metrics(), -1) {
		way := protocol.PrefillWay(m[1])
		if m[2] != metrics.PrefillRemote {
			way = ""
		}
		n, err := strconv.Atoi(m[3])
		if err != nil {
			c.t.Fatal(err)
		}
		out[way] += n
	}
	return out
}

// WaitWay sends prompts through the frontend until one was prefilled in that way: a
// change of settings is seen a moment later.
func (c *Cluster) WaitWay(way protocol.PrefillWay) {
	c.t.Helper()
	deadline := time.Now().Add(c.opts.Timeout)
	before := c.Ways()
	for try := 0; ; try++ {
		prompt := make([]uint32, probeTokens)
		for i := range prompt {
			prompt[i] = uint32(i*try+len(way)*31+try) % 256
		}
		_, err := c.Complete(c.t.Context(), Body{"prompt": prompt, "max_tokens": 1, "temperature": 0})
		now := c.Ways()
		if err == nil && now[way] > before[way] {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("no prompt was ever prefilled by %q: %v before, %v now, %v", way, before, now, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ClearCaches makes all workers forget their prefix caches.
func (c *Cluster) ClearCaches() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.opts.Timeout)
	defer cancel()
	for _, i := range c.Watch.View().Instances {
		if i.Endpoint != cluster.EndpointClearKV {
			continue
		}
		stream, err := c.plane.Call(ctx, i.Transport.Address(), "clear", nil, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		var cleared protocol.ClearedKV
		err = stream.Recv(ctx, &cleared)
		stream.Close()
		if err != nil {
			c.t.Fatalf("clear the cache of %s: %v", i.Worker, err)
		}
	}
}

// WaitRest waits until every worker says that it neither uses a KV block nor waits for one.
func (c *Cluster) WaitRest() {
	c.t.Helper()
	deadline := time.Now().Add(c.opts.Timeout)
	for {
		busy := ""
		all, asked := c.liveStats()
		if len(all) == 0 || len(all) < asked {
			busy = fmt.Sprintf("%d of %d workers answer", len(all), asked)
		}
		for _, st := range all {
			if s := st.Stats; s.Running+s.Waiting+s.RemoteWait+s.KVActive+s.KVIncoming+s.KVOutgoing+s.Quarantined > 0 {
				busy = fmt.Sprintf("%s: %+v", st.Name, s)
			}
		}
		if busy == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("never at rest: %s", busy)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
