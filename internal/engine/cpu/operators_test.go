package cpu

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// Every task of a step is accounted to its operator, and nothing is when nobody asks.
func TestAccountOperators(t *testing.T) {
	for _, tc := range []struct {
		spec modeltest.Spec
		want string
	}{
		{modeltest.Spec{Layers: 2}, "embed 1, norm 5, qkv 2, rotate 2, attention 2, attn-out 2, gate-up 2, down 2, head 1"},
		{modeltest.Spec{Family: "gemma2", Layers: 1}, "embed 1, norm 5, qkv 1, rotate 1, attention 1, attn-out 1, gate-up 1, down 1, head 1"},
		{modeltest.Spec{Family: "mixtral", Layers: 1}, "embed 1, norm 3, qkv 1, rotate 1, attention 1, attn-out 1, router 2, experts 3, head 1"},
	} {
		t.Run(tc.spec.Family, func(t *testing.T) {
			r := newRig(t, modeltest.Open(t, tc.spec), 2, 1, Options{BlockSize: 16})
			seq := engine.BatchSeq{Tokens: []uint32{1, 2, 3}, Blocks: table(0, 1), Logits: r.newLogits()}
			r.step(t, seq)
			stop := r.device.AccountOperators()
			r.step(t, seq)
			var got []string
			for _, o := range stop() {
				if o.Time <= 0 {
					t.Errorf("%s took %s", o.Operator, o.Time)
				}
				got = append(got, fmt.Sprintf("%s %d", o.Operator, o.Runs))
			}
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
			before := r.device.pool.observer.runs[opQKV].Load()
			stop()
			r.step(t, seq)
			if after := r.device.pool.observer.runs[opQKV].Load(); after != before {
				t.Error("it counts after stop")
			}
		})
	}
}

// labels gives the labels of all goroutines as a profile would have them.
func goroutineLabels(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLabelOperators(t *testing.T) {
	d := NewDevice("cpu:0", 2)
	defer d.Close()
	const attention, own = `labels: {"operator":"attention"}`, `"who":"caller"`
	profile := func() (text string) {
		d.pool.run(&task{op: opAttention, run: func(_ *lane, item int) {
			if item == 0 {
				text = goroutineLabels(t)
			}
		}}, 0, 2, never)
		return text
	}
	if text := profile(); strings.Contains(text, attention) {
		t.Errorf("labels that nobody asked for:\n%s", text)
	}
	stop, again := d.LabelOperators(), d.LabelOperators()
	stop()
	stop()
	if text := profile(); !strings.Contains(text, attention) {
		t.Errorf("no label in:\n%s", text)
	}
	again()

	// The leader has its own labels before and after a step.
	r := newRigOn(t, d, modeltest.Open(t, modeltest.Spec{}), 1, Options{BlockSize: 16})
	defer d.LabelOperators()()
	pprof.Do(t.Context(), pprof.Labels("who", "caller"), func(ctx context.Context) {
		if err := r.Step(ctx, []engine.BatchSeq{{Tokens: []uint32{1}, Blocks: table(0, 1)}}); err != nil {
			t.Fatal(err)
		}
		if text := goroutineLabels(t); !strings.Contains(text, own) {
			t.Errorf("the caller lost its labels:\n%s", text)
		}
	})
}
