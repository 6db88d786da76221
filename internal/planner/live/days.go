package live

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// diary keeps the load of the last days in the store, for the next leader.
type diary struct {
	known planner.Days // by the leaders before; until the planner has it
	end   int64        // step after the last one that is kept
}

// maxDiary bounds what is read of a store, in bytes: eight days take about 30 KB.
const maxDiary = 256 << 10

// recall takes over what the leaders before knew. What cannot be is named, ignored, and overwritten later.
func (d *diary) recall(cfg Config, kv store.KV, now time.Time) {
	days, err := decodeDays(kv.Value, now)
	if err != nil {
		cfg.Log.Warn("what was known of the load of earlier days cannot be read, the planner begins anew", "key", kv.Key, "error", err)
		return
	}
	d.known, d.end = days, days.First+int64(len(days.Rates))
}

func decodeDays(b []byte, now time.Time) (days planner.Days, err error) {
	if len(b) > maxDiary {
		return days, fmt.Errorf("%d bytes, at most %d are read", len(b), maxDiary)
	}
	if err := json.Unmarshal(b, &days); err != nil {
		return planner.Days{}, err
	}
	return days, days.Validate(now)
}

// tell hands what was recalled to a planner, once.
func (d *diary) tell(cfg Config, now time.Time, p *planner.Planner) {
	if err := p.RecallDays(now, d.known); err != nil { // it was of now a moment ago: the clock went back
		cfg.Log.Warn("what was known of the load of earlier days is not of now", "error", err)
	}
	d.known = planner.Days{}
}

// keep writes what the planner knows, whenever a step has ended.
func (d *diary) keep(ctx context.Context, cfg Config, pool string, now time.Time, p *planner.Planner) {
	days := p.Days(now)
	end := days.First + int64(len(days.Rates))
	if len(days.Rates) == 0 || end == d.end {
		return
	}
	write, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if _, err := store.PutJSON(write, cfg.Store, cluster.DaysKey(cfg.Namespace, pool), days); err != nil {
		if ctx.Err() == nil {
			cfg.Log.Warn("the load of the last days is not in the store", "pool", pool, "error", err)
		}
		return // at the next observation
	}
	d.end = end
}
