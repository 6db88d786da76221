package kvfeed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
)

// cache is the cache of a worker with the events that it keeps.
type cache struct {
	rng    *rand.Rand
	epoch  uint64
	blocks map[uint64]bool
	ring   []cluster.KVEvent
	next   uint64
}

func (c *cache) restart() {
	c.epoch, c.next, c.ring, c.blocks = c.rng.Uint64(), 0, nil, map[uint64]bool{}
}

// step changes the cache and returns the event of it.
func (c *cache) step(now time.Time) cluster.KVEvent {
	e := cluster.KVEvent{WorkerID: 1, Epoch: c.epoch, EventID: c.next, Time: now}
	switch n := c.rng.IntN(100); {
	case n < 1:
		e.Kind = cluster.KVCleared
		clear(c.blocks)
	case n < 40 && len(c.blocks) > 0:
		e.Kind = cluster.KVRemoved
		all := slices.Sorted(maps.Keys(c.blocks))
		from := c.rng.IntN(len(all))
		e.Removed = all[from:min(from+3, len(all))]
		for _, h := range e.Removed {
			delete(c.blocks, h)
		}
	default:
		e.Kind = cluster.KVStored
		for range 1 + c.rng.IntN(3) {
			h := 1 + c.rng.Uint64N(500)
			e.Stored = append(e.Stored, cluster.KVStoredBlock{BlockHash: h})
			c.blocks[h] = true
		}
	}
	c.ring = append(c.ring, e)
	c.ring = c.ring[max(0, len(c.ring)-16):]
	c.next++
	return e
}

// answer is what a worker answers.
func (c *cache) answer(r protocol.KVEventsRequest, now time.Time) []protocol.KVEventsPage {
	if r.Epoch == c.epoch && r.From <= c.next && c.next-r.From <= uint64(len(c.ring)) {
		return []protocol.KVEventsPage{{Epoch: c.epoch, Next: c.next, Events: c.ring[len(c.ring)-int(c.next-r.From):]}}
	}
	all := slices.Sorted(maps.Keys(c.blocks))
	half := len(all) / 2
	return []protocol.KVEventsPage{
		{Epoch: c.epoch, Next: c.next, All: true, Time: now, Blocks: all[:half]},
		{Epoch: c.epoch, Next: c.next, All: true, Time: now, Blocks: all[half:]},
	}
}

// mail is something on its way.
type mail struct {
	at      time.Time
	deliver func(now time.Time)
}

// With events and positions lost, questions that fail, restarts and resets at random, no
// block stays in the index for more than a second after it has left the worker's cache,
// and when all is quiet the two are equal.
func TestNoFalseResidencyForLong(t *testing.T) {
	resets := uint64(0)
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			index := kvindex.New(kvindex.Config{})
			c := &cache{rng: rng}
			c.restart()
			now := time.Unix(1_000_000, 0)
			tr := &tracker{id: 1, index: index, heard: now}
			var way []mail
			var last time.Time // of events and positions each: a queue keeps its order
			send := func(deliver func(time.Time)) {
				if rng.IntN(100) < 5 {
					return
				}
				last = latest(last, now.Add(time.Duration(1+rng.IntN(20))*time.Millisecond))
				way = append(way, mail{last, deliver})
			}
			ghosts := map[uint64]time.Time{} // blocks of the index that the cache has not, since when
			oldest := time.Duration(0)
			const busy, end = 60_000, 64_000
			for ms := range end {
				now = now.Add(time.Millisecond)
				if ms < busy && rng.IntN(10) == 0 {
					e := c.step(now)
					send(func(now time.Time) { tr.event(e, now) })
				}
				if ms < busy && rng.IntN(8000) == 0 {
					c.restart()
				}
				if every := 200; ms%every == 0 {
					epoch, next := c.epoch, c.next
					send(func(now time.Time) { tr.position(epoch, next, now) })
				}
				for i := 0; i < len(way); i++ {
					if !way[i].at.After(now) {
						m := way[i]
						way = slices.Delete(way, i, i+1)
						i--
						m.deliver(now)
					}
				}
				if ms%50 == 0 && tr.due(now, silentFor) {
					r, fails := tr.ask(), rng.IntN(10) == 0
					at := now.Add(time.Duration(1+rng.IntN(30)) * time.Millisecond)
					way = append(way, mail{at, func(now time.Time) {
						if fails {
							tr.failed(now)
							return
						}
						pages := c.answer(r, now)
						way = append(way, mail{now.Add(time.Duration(1+rng.IntN(30)) * time.Millisecond), func(now time.Time) { tr.answer(pages, now) }})
					}})
				}
				if ms%10 == 0 {
					has := map[uint64]bool{}
					for _, h := range index.Snapshot(1, kvindex.Device) {
						has[h] = true
						if c.blocks[h] {
							delete(ghosts, h)
						} else if ghosts[h].IsZero() {
							ghosts[h] = now
						}
					}
					for h, since := range ghosts {
						if !has[h] {
							delete(ghosts, h)
						} else if oldest = max(oldest, now.Sub(since)); oldest > time.Second {
							t.Fatalf("after %d ms: a block is in the index %s after it has left the cache; %+v", ms, now.Sub(since), tr)
						}
					}
				}
			}
			got, want := index.Snapshot(1, kvindex.Device), slices.Sorted(maps.Keys(c.blocks))
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("in the end the index has %d blocks, the cache %d", len(got), len(want))
			}
			if tr.gaps == 0 || tr.dumps < 2 || tr.answers <= tr.dumps {
				t.Errorf("%d gaps, %d answers, %d of all: not everything was tried", tr.gaps, tr.answers, tr.dumps)
			}
			resets += tr.resets
			t.Logf("oldest false block: %s; %d gaps, %d answers, %d of all, %d resets", oldest, tr.gaps, tr.answers, tr.dumps, tr.resets)
		})
	}
	if resets == 0 {
		t.Error("no cache was seen to start anew")
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Dynamo's cases of recovery, one by one.
func TestTracker(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	stored := func(epoch, id uint64, ms int, hashes ...uint64) cluster.KVEvent {
		e := cluster.KVEvent{WorkerID: 1, Epoch: epoch, EventID: id, Kind: cluster.KVStored, Time: at(ms)}
		for _, h := range hashes {
			e.Stored = append(e.Stored, cluster.KVStoredBlock{BlockHash: h})
		}
		return e
	}
	all := func(epoch, next uint64, ms int, blocks ...uint64) []protocol.KVEventsPage {
		return []protocol.KVEventsPage{{Epoch: epoch, Next: next, All: true, Time: at(ms), Blocks: blocks}}
	}
	for _, tc := range []struct {
		name string
		do   func(*testing.T, *tracker)
		want []uint64
	}{
		{"events before the first answer are applied once", func(_ *testing.T, tr *tracker) {
			tr.event(stored(5, 3, 30, 3), at(31))
			tr.event(stored(5, 4, 40, 4), at(41))
			tr.answer(all(5, 4, 35, 1, 3), at(45))
		}, []uint64{1, 3, 4}},
		{"an event that the answer has overtaken changes nothing", func(_ *testing.T, tr *tracker) {
			tr.answer(all(5, 4, 35, 1), at(40))
			tr.event(stored(5, 3, 30, 3), at(45))
		}, []uint64{1}},
		{"a gap is filled from the ring", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 0, 0), at(1))
			tr.event(stored(5, 0, 10, 10), at(11))
			tr.event(stored(5, 2, 12, 12), at(13))
			if !tr.due(at(14), silentFor) {
				t.Error("a gap is not asked for")
			}
			if r := tr.ask(); r.Epoch != 5 || r.From != 1 || tr.due(at(15), silentFor) {
				t.Errorf("asked for %+v", r)
			}
			tr.event(stored(5, 3, 16, 13), at(17))
			tr.answer([]protocol.KVEventsPage{{Epoch: 5, Next: 3, Events: []cluster.KVEvent{stored(5, 1, 11, 11), stored(5, 2, 12, 12)}}}, at(18))
			if tr.due(at(19), silentFor) || tr.gaps != 1 || tr.next != 4 {
				t.Errorf("after the answer: %+v", tr)
			}
		}, []uint64{10, 11, 12, 13}},
		{"a new epoch forgets the blocks at once", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1, 2), at(1))
			tr.event(stored(6, 0, 10, 9), at(11))
			if tr.due(at(12), silentFor) || tr.next != 1 {
				t.Errorf("%+v", tr)
			}
		}, []uint64{9}},
		{"a new epoch, its first events lost", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1, 2), at(1))
			tr.event(stored(6, 2, 10, 9), at(11))
			if !tr.due(at(12), silentFor) || tr.ask().From != 0 {
				t.Errorf("%+v", tr)
			}
		}, nil},
		{"ids that go backwards forget the blocks", func(_ *testing.T, tr *tracker) {
			tr.answer(all(0, 7, 0, 1, 2), at(1))
			tr.event(stored(0, 0, 10, 9), at(11))
		}, []uint64{9}},
		{"an event of the epoch before", func(_ *testing.T, tr *tracker) {
			tr.answer(all(6, 1, 50, 1), at(51))
			tr.event(stored(5, 9, 40, 9), at(52))
		}, []uint64{1}},
		{"the last event is lost", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1), at(1))
			tr.position(5, 8, at(200))
			if tr.due(at(250), silentFor) {
				t.Error("asked at once: the event may still come")
			}
			tr.position(5, 8, at(400))
			if !tr.due(at(410), silentFor) || tr.ask().From != 7 {
				t.Errorf("not asked: %+v", tr)
			}
		}, []uint64{1}},
		{"the event came after the position", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1), at(1))
			tr.position(5, 8, at(200))
			tr.event(stored(5, 7, 199, 2), at(210))
			if tr.due(at(450), silentFor) {
				t.Error("asked for nothing, before the next position")
			}
			tr.position(5, 8, at(460))
			if tr.due(at(700), silentFor) {
				t.Error("asked for nothing")
			}
		}, []uint64{1, 2}},
		{"a worker that cannot be asked loses its blocks", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1), at(1))
			tr.event(stored(5, 9, 10, 2), at(11))
			for ms := 50; ms < 1500; ms += 50 {
				if tr.due(at(ms), 10*time.Second) {
					tr.ask()
					tr.failed(at(ms))
				}
			}
			if tr.known {
				t.Error("an answer with some events would do")
			}
		}, nil},
		{"a silent worker is asked", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1), at(1))
			if tr.due(at(1000), silentFor) || !tr.due(at(1300), silentFor) || !tr.due(at(1300), silentFor) {
				t.Errorf("%+v", tr)
			}
		}, []uint64{1}},
		{"an answer to something else is asked for again", func(t *testing.T, tr *tracker) {
			tr.answer(all(5, 7, 0, 1), at(1))
			tr.event(stored(5, 9, 10, 2), at(11))
			tr.ask()
			tr.answer([]protocol.KVEventsPage{{Epoch: 5, Next: 10, Events: []cluster.KVEvent{stored(5, 8, 9, 3)}}}, at(20))
			if tr.known || !tr.due(at(21), silentFor) {
				t.Errorf("%+v", tr)
			}
		}, []uint64{1}},
		{"blocks that stay are found while the others go", func(_ *testing.T, tr *tracker) {
			tr.index.Store(1, kvindex.Host, []uint64{4})
			tr.answer(all(5, 7, 0, 1, 2), at(1))
			tr.known = false
			tr.answer(all(5, 8, 5, 2, 3), at(6))
		}, []uint64{2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := &tracker{id: 1, index: kvindex.New(kvindex.Config{}), heard: at(0)}
			tc.do(t, tr)
			got := tr.index.Snapshot(1, kvindex.Device)
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("the index has %v, want %v", got, tc.want)
			}
			if held := tr.index.Held(1); held[kvindex.Host] != 0 || held[kvindex.Disk] != 0 {
				t.Errorf("blocks in other tiers: %v", held)
			}
		})
	}
}
