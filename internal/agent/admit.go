package agent

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
)

// holding is the memory that a worker of this node holds.
type holding struct {
	worker, device string
	key            modelKey
	pool           int64 // bytes of its KV blocks
}

// hold records a holding until the returned function is called.
func (m *models) hold(h holding) (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holdings[&h] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.holdings, &h)
	}
}

// onHost reports whether a device computes in the memory of the host.
func onHost(device string) bool { return cluster.Device{ID: device}.Kind() == "cpu" }

// occupied is the memory of a device, in bytes, that the workers of this node hold. All
// CPU devices share the host's memory.
type occupied struct {
	pools, weights int64 // without freed
	freed          int64 // memory released with the worker called instead: its pool, and weights that only it uses
	later          int64 // of the host: vision towers that are packed when their first image comes
	loaded         bool  // the requested weights are loaded and stay
}

func (m *models) occupied(device, instead string, key modelKey) (o occupied) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stay, goes := map[modelKey]bool{}, map[modelKey]bool{}
	for h := range m.holdings {
		switch {
		case h.device != device && !(onHost(h.device) && onHost(device)):
		case h.worker == instead:
			o.freed += h.pool
			goes[h.key] = true
		default:
			o.pools += h.pool
			stay[h.key] = true
		}
	}
	for k := range stay {
		delete(goes, k)
	}
	for k, sm := range m.shared {
		switch {
		case goes[k]:
			o.freed += sm.bytes.Load()
			continue
		case stay[k]:
			o.weights += sm.bytes.Load()
		}
		o.later += sm.later.Load()
	}
	o.loaded = stay[key]
	return o
}

// room returns how many bytes a device has for the weights and pool of a worker that
// replaces the worker called instead, or 0 if unknown.
func (m *models) room(device computer, o occupied) int64 {
	if own := device.memory(); own > 0 {
		return max(own-o.pools-o.weights, 1)
	}
	return m.hostMemory(o)
}

// hostRoom returns how many bytes the host has for one more pool, or 0 if unknown.
func (m *models) hostRoom() int64 { return m.hostMemory(m.occupied("cpu:", "", modelKey{})) }

func (m *models) hostMemory(o occupied) int64 {
	free, most := m.memory()
	if free <= 0 {
		return 0
	}
	free += o.freed - o.later
	if most > 0 { // counts pools, too, whose pages have not been touched yet
		free = min(free, most-o.pools-o.later)
	}
	return max(free, 1)
}

// usable checks everything in an assignment that can be checked without its model.
func (m *models) usable(as cluster.Assignment) (computer, error) {
	device := m.a.devices[as.Device]
	if device == nil {
		return nil, fmt.Errorf("this node has no device %q", as.Device)
	}
	if err := errors.Join(as.Model.Validate(), as.Engine.Validate(), parse.CheckTool(as.Model.ToolParser), parse.CheckReasoning(as.Model.ReasoningParser)); err != nil {
		return nil, err
	}
	if e := (cluster.EngineSpec{Backend: as.Engine.Backend}); !e.RunsOn(as.Device) {
		return nil, fmt.Errorf("the backend %s does not compute on %s", as.Engine.Backend, as.Device)
	}
	return device, nil
}

// look returns the model that a worker would have in the place of the worker called instead:
// the copy that other workers have loaded, or one read anew. The caller must call done.
func (m *models) look(key modelKey, instead string) (mod *model.Model, done func() error, err error) {
	if sm := m.borrow(key, instead); sm != nil {
		return sm.model, func() error { m.release(key, sm); return nil }, nil
	}
	if mod, err = m.read(key); err != nil {
		return nil, nil, err
	}
	if _, err := processor(mod); err != nil {
		return nil, nil, errors.Join(err, mod.Close())
	}
	return mod, mod.Close, nil
}

// borrow returns the loaded copy that a worker other than the one called instead holds, with
// one more reference, or nil.
func (m *models) borrow(key modelKey, instead string) *sharedModel {
	m.mu.Lock()
	defer m.mu.Unlock()
	for h := range m.holdings {
		if sm := m.shared[key]; h.key == key && h.worker != instead && sm != nil {
			sm.refs++
			return sm
		}
	}
	return nil
}

// admit returns why a worker could not start with the assignment as, before anything is
// given up for it: an unusable device or model, settings that do not fit the model, or
// too little memory. The memory of the worker called instead counts as free. admit reads
// only headers and small files of the model, and nothing of one that others have loaded.
// Broken weights show when they are loaded. An encode worker needs a model with a vision
// tower, and memory for that alone; others need memory for the tower beside the rest, because
// they encode images that no encode worker does.
func (m *models) admit(as cluster.Assignment, instead string) (err error) {
	device, err := m.usable(as)
	if err != nil {
		return err
	}
	key := m.keyOf(as)
	mod, done, err := m.look(key, instead)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	o := m.occupied(as.Device, instead, key)
	room := m.room(device, o)
	if key.tower {
		return admitTower(device, mod, key, o, room)
	}
	spec, c := m.engineSpec(as.Engine), mod.Config()
	if spec.MaxModelLen > c.MaxContext {
		return fmt.Errorf("max_model_len: %d is not between 1 and the model's %d", spec.MaxModelLen, c.MaxContext)
	}
	kv := kvlayout.Shape{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, BlockSize: spec.BlockSize}
	var weights, tower int64
	if key.mock {
		kv, err = mockKV(spec, mod)
	} else if kv.DType, err = device.suits(mod, spec); !o.loaded {
		weights, tower = device.weightBytes(mod), towerBytes(device, mod)
	}
	if err != nil {
		return err
	}
	if need := weights + tower; need > 0 && room > 0 {
		if room -= need; room <= 0 {
			return noMemory("the weights of %s need %s%s, %s are free; use a smaller model, or a file with smaller weights", mod.Dir(), gib(need), withTower(tower), gib(room+need))
		}
	}
	_, err = poolSize(spec.KVBlocks, kv.BlockBytes(), cmp.Or(spec.MaxModelLen, c.MaxContext), spec.BlockSize, room)
	return err
}
