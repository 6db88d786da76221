package kvevents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// drained is a server of TensorRT-LLM whose queue a test fills.
type drained chan any // a string or an error

func (d drained) take(ctx context.Context) (io.ReadCloser, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case v := <-d:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return io.NopCloser(strings.NewReader(v.(string))), nil
	default:
		return io.NopCloser(strings.NewReader("[]")), nil
	}
}

// queuedBlocks writes stored blocks of four tokens, each behind the one before.
func queuedBlocks(id int, parent string, more string, hashes ...string) string {
	var blocks []string
	for _, h := range hashes {
		blocks = append(blocks, fmt.Sprintf(`{"type":"stored_block","block_hash":%s,"tokens":[`+strings.Repeat(`{"type":"unique_token","token_id":7,"token_extra_id":0},`, 3)+
			`{"type":"unique_token","token_id":8,"token_extra_id":0}],"cache_level":0,"priority":35}`, h))
	}
	return fmt.Sprintf(`[{"event_id":%d,"data":{"type":"stored","parent_hash":%s,"blocks":[%s]},"window_size":4096%s}]`, id, parent, strings.Join(blocks, ","), more)
}

func queuedEvent(id int, data string) string {
	return fmt.Sprintf(`[{"event_id":%d,"data":%s,"window_size":4096}]`, id, data)
}

func TestDrain(t *testing.T) {
	d := make(drained, 1)
	cfg := Config{Drain: d.take, BlockSize: 8, HashSeed: seed, Sink: newIndex(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	f := start(t, cfg, nil)
	for i, step := range []struct {
		answer any
		blocks int
		also   func(Figures) bool
	}{
		{queuedEvent(0, `{"type":"created","num_blocks_per_cache_level":[100,0]}`), 0, func(n Figures) bool { return n.Events == 1 }},
		{queuedBlocks(1, "null", "", "11", "12", "13", "14"), 2, nil},
		{queuedBlocks(2, "14", `,"attention_dp_rank":0`, `"a-text"`, "18446744073709551615"), 3, nil},
		{queuedBlocks(3, "18446744073709551615", "", "-2", "-9223372036854775808"), 4, nil},
		{queuedEvent(4, `{"type":"removed","block_hashes":[-9223372036854775808]}`), 3, nil},
		{queuedEvent(5, `{"type":"updated","block_hash":"a-text","cache_level":{"type":"event_diff","new_value":1,"old_value":0}}`), 2, nil},
		{queuedEvent(6, `{"type":"updated","block_hash":"a-text","priority":{"new_value":1,"old_value":0}}`), 2, func(n Figures) bool { return n.Events == 7 }},
		{queuedEvent(7, `{"type":"updated","block_hash":"a-text","cache_level":{"new_value":0,"old_value":1}}`), 3, nil},
		{queuedBlocks(8, "null", "", "11"), 3, func(n Figures) bool { return n.Events == 9 }},
		{queuedEvent(9, `{"type":"removed","block_hashes":[11]}`), 2, nil},
		{queuedEvent(10, `{"type":"new","x":1}`), 2, func(n Figures) bool { return n.Unknown == 1 }},
		{strings.Replace(queuedBlocks(11, "null", "", "91", "92"), `"token_extra_id":0`, `"token_extra_id":5`, 1), 2, func(n Figures) bool { return n.Ignored == 2 }},
		{strings.Replace(queuedBlocks(12, "null", "", "93", "94"), "4096", "512", 1), 2, func(n Figures) bool { return n.Ignored == 4 }},
		{strings.ReplaceAll(queuedBlocks(13, "null", "", "95", "96"), `"priority"`, `"mm_keys":["x"],"priority"`), 2, func(n Figures) bool { return n.Ignored == 6 }},
		{queuedBlocks(0, "null", `,"attention_dp_rank":1`, "11", "12"), 3, nil}, // another rank, with numbers of its own
		{errors.New("of the test"), 3, nil},
		{queuedBlocks(14, "null", "", "17"), 3, func(n Figures) bool { return n.Gaps == 0 && n.Restarts == 0 && n.Forgotten == 0 }},
		{queuedBlocks(20, "null", "", "11", "12"), 1, func(n Figures) bool { return n.Gaps == 1 && n.Forgotten == 1 }},
		{queuedBlocks(3, "null", "", "21", "22", "23", "24"), 2, func(n Figures) bool { return n.Restarts == 1 }},
		{"[{]", 0, func(n Figures) bool { return n.Undecodable == 1 }},
		{`{"error":"x"}`, 0, func(n Figures) bool { return n.Undecodable == 2 }},
		{"null", 0, nil},
		{queuedBlocks(50, "null", "", "11", "12"), 1, nil},
		{strings.Replace(queuedBlocks(51, "null", "", "31", "32"), "4096", "8192", 1), 1, func(n Figures) bool { return n.ServerBlocks == 2 }},
		{queuedEvent(52, `{"type":"removed","block_hashes":[31]}`), 1, func(n Figures) bool { return n.Events > 20 }}, // of the window before
		{strings.Replace(queuedBlocks(53, "31", `,"attention_dp_rank":1000000`, "41", "42"), "4096", "8192", 1), 1, func(n Figures) bool { return n.Orphans == 2 }},
		{strings.Replace(queuedBlocks(54, "null", `,"attention_dp_rank":1000000`, "41", "42"), "4096", "8192", 1), 1, func(n Figures) bool { return n.ServerBlocks == 4 }},
		{queuedBlocks(55, "null", `,"attention_dp_rank":-1`, "51"), 0, func(n Figures) bool { return n.Undecodable == 3 }},
	} {
		d <- step.answer
		wanted := time.Now()
		holds(t, f, step.blocks, func(n Figures) bool { return len(d) == 0 && (step.also == nil || step.also(n)) })
		if t.Failed() {
			t.Fatalf("step %d after %v", i, time.Since(wanted))
		}
	}
}

// An answer without end is cut.
func TestDrainIsBounded(t *testing.T) {
	first := true
	cfg := Config{BlockSize: 8, Sink: newIndex(t), Log: slog.New(slog.DiscardHandler)}
	cfg.Drain = func(context.Context) (io.ReadCloser, error) {
		if !first {
			return nil, errors.New("once")
		}
		first = false
		return io.NopCloser(io.MultiReader(strings.NewReader("["), endless{})), nil
	}
	f := start(t, cfg, nil)
	holds(t, f, 0, func(n Figures) bool { return n.Undecodable == 1 })
}

// endless is white space.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func FuzzDrain(f *testing.F) {
	f.Add(queuedBlocks(1, "null", "", "11", `"12"`, "-13"))
	f.Add(queuedEvent(2, `{"type":"updated","block_hash":1,"cache_level":{"new_value":1}}`))
	f.Fuzz(func(t *testing.T, answer string) {
		sink := newIndex(t)
		fo, err := New(Config{Drain: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(answer)), nil },
			BlockSize: 4, HashSeed: seed, Sink: sink, MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		q := &queue{Follower: fo, ranks: map[int]*source{}}
		for range 2 {
			_, _ = q.poll(t.Context()) // nonsense is an error
			var ranks []*rank
			for _, s := range q.ranks {
				ranks = append(ranks, s.rank)
			}
			fo.blocks.check(t, ranks...)
			if len(sink.blocks) != fo.Figures().Blocks {
				t.Errorf("the sink has %d blocks of %d", len(sink.blocks), fo.Figures().Blocks)
			}
		}
	})
}
