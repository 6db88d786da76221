package client

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// The load of all frontends is one, by time; who remembers nothing and who is silent is told.
func TestRecordedLoad(t *testing.T) {
	c := lab(t)
	if _, err := c.RecordedLoad(t.Context(), view(t, c), 0); !errors.Is(err, ErrNoLoad) {
		t.Errorf("without frontends: %v", err)
	}
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	q := func(s, prompt, output int, blocks ...uint64) cluster.RecordedRequest {
		return cluster.RecordedRequest{At: at(s), Model: "m", Prompt: prompt, Output: output, Blocks: blocks}
	}
	pages := map[string][]cluster.RecordedLoad{
		"node-1": {
			{Since: at(-9), Requests: []cluster.RecordedRequest{q(4, 600, 9, 77, 88), q(1, 512, 5, 77)}},
			{Since: at(-9), Requests: []cluster.RecordedRequest{q(6, 3, 0, 5)}},
		},
		"node-2": {{Since: at(-3), Requests: []cluster.RecordedRequest{q(2, 700, 1, 99, 88), {At: at(3), Model: "other", Prompt: 1, Output: 1, Blocks: []uint64{5}}}}},
		"node-3": {{Off: true, Since: at(9)}},
		"node-4": nil,
	}
	for _, name := range []string{"node-1", "node-2", "node-3", "node-4"} {
		id := grant(t, c, time.Minute)
		put(t, c, cluster.NodeKey(name), cluster.Node{ID: name, Name: name, Namespace: c.Namespace}, id)
		plane(t, c, cluster.ComponentFrontend, cluster.EndpointLoad, name, "", id, func(_ context.Context, r *requestplane.Request, send func(any) error) error {
			var ask protocol.LoadRequest
			if err := r.Decode(&ask); err != nil || ask.Since != time.Minute {
				t.Errorf("%+v, %v", ask, err)
			}
			for _, p := range pages[name] {
				p.Frontend = name
				if err := send(p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	l, err := c.RecordedLoad(t.Context(), view(t, c), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.Frontends, []string{"node-1", "node-2"}) || !slices.Equal(l.Off, []string{"node-3"}) || !slices.Equal(l.Silent, []string{"node-4"}) || !l.Since.Equal(at(-3)) || !slices.Equal(l.Models(), []string{"m", "other"}) {
		t.Errorf("%+v", l)
	}
	got, unanswered := l.Trace("m")
	want := []mooncake.Request{
		{At: 0, Input: 512, Output: 5, Blocks: []uint64{0}}, {At: time.Second, Input: 700, Output: 1, Blocks: []uint64{1, 2}}, {At: 3 * time.Second, Input: 600, Output: 9, Blocks: []uint64{0, 2}},
	}
	if !reflect.DeepEqual(got, want) || unanswered != 1 {
		t.Errorf("%+v, %d without an answer", got, unanswered)
	}
	if all, _ := l.Trace(""); len(all) != 4 || all[2].Blocks[0] != 3 {
		t.Errorf("%+v", all)
	}
	if mooncake.BlockSize != cluster.LoadBlock {
		t.Error("blocks of a trace and of frontends have different sizes")
	}
}
