package agent

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model"
)

// withTower returns a model that was read for encode workers, or closes one that has no
// vision tower for them.
func (m *models) withTower(mod *model.Model) (*model.Model, error) {
	if _, ok := m.tower(mod); !ok {
		return nil, errors.Join(fmt.Errorf("model %s has no vision tower: only models that see images have encode workers", mod.Dir()), mod.Close())
	}
	return mod, nil
}

// declines returns why an encode worker is not even started: its model has no vision tower,
// or cannot be read. Memory may come while it starts.
func (a *Agent) declines(as cluster.Assignment) error {
	if as.Role.HoldsKV() {
		return nil
	}
	if err := a.admit(as, ""); err != nil && !errors.Is(err, ErrMemory) {
		return err
	}
	return nil
}

// admitTower is admit for an encode worker, which has no engine whose settings could be
// wrong. room is the free memory of the device in bytes, 0 if unknown.
func (m *models) admitTower(mod *model.Model, key modelKey, o occupied, room int64) error {
	if bytes, _ := m.tower(mod); !key.mock && !o.loaded && room > 0 && bytes > room {
		return noMemory("the vision tower of %s needs %s, %s are free", mod.Dir(), gib(bytes), gib(room))
	}
	return nil
}
