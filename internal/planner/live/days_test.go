package live

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// diaryOf is the load of so many days that ended at now: a peak in the hour after now, each day.
func diaryOf(now time.Time, days int) (d planner.Days) {
	const perDay = 288
	end := now.Unix() / 300
	d.First = end - int64(days*perDay)
	last := 4.0
	for n := range days * perDay {
		d.Expected = append(d.Expected, last)
		if last = 4; n%perDay < 12 {
			last = 50
		}
		d.Rates = append(d.Rates, last)
	}
	return d
}

// What a leader knows of earlier days is in the store within a step, and the next leader has workers for the peak before
// it begins.
func TestDaysOutliveTheLeader(t *testing.T) {
	inWorld(t, 1, 1, func(w *world) {
		time.Sleep(time.Until(time.Now().Truncate(5 * time.Minute).Add(15 * time.Minute)))
		peak := time.Now().Add(5 * time.Minute)
		w.put(cluster.DaysKey(ns, ""), diaryOf(peak, 3))
		before, _, err := store.GetJSON[planner.Days](w.ctx, w.store, cluster.DaysKey(ns, ""))
		if err != nil {
			t.Fatal(err)
		}
		before.Rates, before.Expected = before.Rates[:len(before.Rates)-1], before.Expected[:len(before.Expected)-1] // five minutes are to come
		w.put(cluster.DaysKey(ns, ""), before)
		stop := w.plans("node-1", nil)
		w.live(120)
		stop()
		defer w.plans("node-2", nil)()
		w.until("there are workers for the peak", int(time.Until(peak)/time.Second), func() bool { return w.plan().Prefill > 1 })
		if left := time.Until(peak); left < 20*time.Second || left > 90*time.Second {
			t.Errorf("%s before it", left)
		}
		if r := w.report(); !strings.Contains(strings.Join(r.Explanation, "\n"), "count where they are higher") {
			t.Errorf("%q", r.Explanation)
		}
		w.live(int(time.Until(peak)/time.Second) + 10)
		after, _, err := store.GetJSON[planner.Days](w.ctx, w.store, cluster.DaysKey(ns, ""))
		if err != nil || after.Validate(time.Now()) != nil || len(after.Rates) != len(before.Rates)+1 || math.Abs(after.Rates[len(after.Rates)-1]-4) > 0.1 {
			t.Errorf("%v, %d steps after %d, the last is %v", err, len(after.Rates), len(before.Rates), after.Rates[max(len(after.Rates)-1, 0):])
		}
	})
}

// A value that cannot be is named and ignored, and the next step overwrites it.
func TestDaysThatCannotBeRead(t *testing.T) {
	inWorld(t, 1, 1, func(w *world) {
		for value, want := range map[string]string{
			`{"first":1,"rates":[1,2],"expected":[1]}`: "expected: 1 steps, rates has 2",
			`{"first":"x"}`:                 "cannot unmarshal",
			strings.Repeat(" ", maxDiary+1): "at most 262144 are read",
		} {
			if _, err := w.store.Put(w.ctx, cluster.DaysKey(ns, ""), []byte(value)); err != nil {
				t.Fatal(err)
			}
			var told patience.Buffer
			var d diary
			cfg := Config{Store: w.store, Namespace: ns, Log: slog.New(slog.NewTextHandler(&told, nil))}
			kv, err := w.store.Get(w.ctx, cluster.DaysKey(ns, ""))
			if err != nil {
				t.Fatal(err)
			}
			if d.recall(cfg, kv, time.Now()); len(d.known.Rates) != 0 || d.end != 0 {
				t.Errorf("%.40s: %+v", value, d)
			}
			if text := told.String(); !strings.Contains(text, cluster.DaysKey(ns, "")) || !strings.Contains(text, want) {
				t.Errorf("%.40s: %s", value, text)
			}
		}
		defer w.plans("node-1", nil)()
		w.live(660)
		d, _, err := store.GetJSON[planner.Days](w.ctx, w.store, cluster.DaysKey(ns, ""))
		if err != nil || d.Validate(time.Now()) != nil || len(d.Rates) < 1 || math.Abs(d.Rates[len(d.Rates)-1]-4) > 0.1 {
			t.Errorf("%+v %v", d, err)
		}
	})
}
