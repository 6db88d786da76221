package cluster

import (
	"slices"
	"testing"
	"time"
)

func TestKVProblems(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	recent := func(predicted, wrong uint64) *KVAccuracy {
		return &KVAccuracy{Requests: 1, Predicted: predicted, Found: predicted - wrong, False: wrong}
	}
	for name, tt := range map[string]struct {
		index *KVIndexWorker
		want  []string
	}{
		"nothing is known":    {nil, nil},
		"not reported":        {&KVIndexWorker{Accuracy: *recent(1000, 900)}, nil},
		"all were there":      {&KVIndexWorker{Recent: recent(1000, 0)}, nil},
		"a tenth is allowed":  {&KVIndexWorker{Recent: recent(1000, 100)}, nil},
		"too few to judge":    {&KVIndexWorker{Recent: recent(199, 199)}, nil},
		"false":               {&KVIndexWorker{Recent: recent(400, 50)}, []string{"worker-3: 12% of 400 predicted blocks were not there"}},
		"missing for a while": {&KVIndexWorker{OutOfDateSince: now.Add(-4999 * time.Millisecond)}, nil},
		"both": {&KVIndexWorker{OutOfDateSince: now.Add(-65 * time.Second), Recent: recent(200, 200)},
			[]string{"index of worker-3 is out of date for 1m5s", "worker-3: 100% of 200 predicted blocks were not there"}},
	} {
		if got := (KVCache{Worker: "worker-3", Index: tt.index}).Problems(now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestCombineKVIndexes(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	clock := now.Add(time.Hour) // of the second frontend
	w := func(name string, id InstanceID, next uint64, device int, since time.Time, predicted uint64) KVIndexWorker {
		return KVIndexWorker{Worker: name, InstanceID: id, Epoch: 7, Next: next, Device: device, OutOfDateSince: since, GapsTotal: next,
			Accuracy: KVAccuracy{Predicted: predicted}, Recent: &KVAccuracy{Predicted: predicted}}
	}
	silent := w("worker-2", 2, 5, 50, time.Time{}, 1)
	silent.Recent = nil
	got := CombineKVIndexes([]KVIndex{
		{At: now, Workers: []KVIndexWorker{w("worker-10", 10, 3, 30, time.Time{}, 0), w("worker-2", 2, 9, 90, time.Time{}, 100)}},
		{At: clock, Approximate: true, Workers: []KVIndexWorker{w("worker-2", 2, 8, 80, clock.Add(-6*time.Second), 20)}},
		{At: now, Workers: []KVIndexWorker{silent}},
	}, now)
	if len(got) != 2 || got[0].Worker != "worker-2" || got[1].Worker != "worker-10" || got[1].Approximate {
		t.Fatalf("caches %+v", got)
	}
	c := got[0]
	if !c.Approximate || c.Index.Next != 5 || c.Index.Device != 50 || c.Index.GapsTotal != 9 || !c.Index.OutOfDateSince.Equal(now.Add(-6*time.Second)) {
		t.Errorf("the frontend that is furthest behind counts, by one clock: %+v", c.Index)
	}
	if c.Index.Accuracy.Predicted != 121 || c.Index.Recent.Predicted != 120 {
		t.Errorf("accuracies are added: %+v and %+v", c.Index.Accuracy, c.Index.Recent)
	}
}
