package live

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// number is a decimal number in the store.
type number struct {
	value    int64
	revision store.Revision // 0: there is none
}

func decodeNumber(kv store.KV) (number, error) {
	v, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil || v < 0 {
		return number{}, fmt.Errorf("decode %s: %q is not a decimal number", kv.Key, kv.Value)
	}
	return number{v, kv.ModRevision}, nil
}

// Virtual is what the keys of the virtual connector say, by name.
type Virtual map[string]number

// decision returns the newest decision; -1: none yet.
func (v Virtual) decision() int64 { return v.id(cluster.VirtualDecision) }

// scaled returns the newest decision that was carried out; -1: none yet.
func (v Virtual) scaled() int64 { return v.id(cluster.VirtualScaled) }

func (v Virtual) id(name string) int64 {
	if n := v[name]; n.revision != 0 {
		return n.value
	}
	return -1
}

// virtualKeys are those that planners write, in this order: who follows the last one finds the others as
// they were decided.
var virtualKeys = []string{cluster.VirtualPrefill, cluster.VirtualDecode, cluster.VirtualDecision}

// claimVirtual writes the keys again as they are. Whoever observed them before can write none of them.
func (a *actor) claimVirtual(ctx context.Context) (newest store.Revision, err error) {
	for _, name := range virtualKeys {
		key := cluster.VirtualPlannerKey(a.cfg.Namespace, name)
		kv, err := a.cfg.Store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err == nil {
			err = a.leads(ctx)
		}
		if err != nil {
			return 0, err
		}
		rev, err := a.cfg.Store.CompareAndSwap(ctx, key, kv.ModRevision, kv.Value)
		if err != nil {
			return 0, err
		}
		newest = max(newest, rev)
	}
	return newest, a.leads(ctx)
}

// tell writes a decision for others to carry out, and returns its number.
func (a *actor) tell(ctx context.Context, v Virtual, plan planner.Plan) (id int64, err error) {
	id = v.decision() + 1
	if err := a.leads(ctx); err != nil {
		return id, err
	}
	for _, name := range virtualKeys {
		n := map[string]int64{cluster.VirtualPrefill: int64(plan.Prefill), cluster.VirtualDecode: int64(plan.Decode), cluster.VirtualDecision: id}[name]
		_, err := a.cfg.Store.CompareAndSwap(ctx, cluster.VirtualPlannerKey(a.cfg.Namespace, name), v[name].revision, []byte(strconv.FormatInt(n, 10)))
		if err != nil {
			return id, err
		}
	}
	return id, nil
}
