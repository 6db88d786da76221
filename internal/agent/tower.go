package agent

import (
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/model"
)

// towerBytes returns how much memory a device needs for the vision tower of a model when the
// first image comes; 0 for a model that takes no images.
func towerBytes(device computer, m *model.Model) int64 {
	if proc, err := images(m); err != nil || proc == nil {
		return 0
	}
	return device.towerBytes(m)
}

// withTower adds to a sum of memory how much of it is for a vision tower.
func withTower(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of that for its vision tower", gib(bytes))
}

// mustSee returns a model that was read for encode workers, or closes one that has no
// vision tower for them.
func mustSee(mod *model.Model) (*model.Model, error) {
	if !mod.Config().SeesImages() {
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
func admitTower(device computer, mod *model.Model, key modelKey, o occupied, room int64) error {
	if bytes := towerBytes(device, mod); !key.mock && !o.loaded && room > 0 && bytes > room {
		return noMemory("the vision tower of %s needs %s, %s are free; use a smaller model", mod.Dir(), gib(bytes), gib(room))
	}
	return nil
}
