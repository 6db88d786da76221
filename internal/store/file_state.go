package store

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// apply takes over one record of the log.
func (f *File) apply(r record) error {
	switch {
	case r.Snapshot != nil:
		return f.adopt(r)
	case r.Put != nil:
		kv, err := r.Put.kv(r.Rev)
		if err != nil {
			return err
		}
		f.state.put(kv)
	case r.Delete != "":
		f.state.remove([]string{r.Delete}, r.Rev)
	case r.Hold != nil:
		_, err := f.hold(*r.Hold)
		return err
	case len(r.End) > 0:
		for _, text := range r.End {
			id, err := cluster.ParseInstanceID(text)
			if err != nil {
				return err
			}
			f.state.end(id, r.Rev)
		}
	default:
		return fmt.Errorf("a record of a newer version")
	}
	return nil
}

func (f *File) hold(l fileLease) (cluster.InstanceID, error) {
	id, err := cluster.ParseInstanceID(l.ID)
	if err != nil {
		return 0, err
	}
	f.state.hold(id, l.TTL, l.Beats)
	return id, nil
}

// adopt takes over a snapshot. Usually that is of the state that has been read already.
func (f *File) adopt(r record) error {
	if r.Snapshot.Version != fileVersion {
		return fmt.Errorf("version %d of the format is not known here, only %d", r.Snapshot.Version, fileVersion)
	}
	ids := map[cluster.InstanceID]struct{}{}
	for _, l := range r.Snapshot.Leases {
		id, err := f.hold(l)
		if err != nil {
			return err
		}
		ids[id] = struct{}{}
	}
	f.state.keepLeases(ids)
	if r.Snapshot.Store == f.id && r.Rev == f.state.rev {
		return nil
	}
	f.id = r.Snapshot.Store
	all := make([]KV, len(r.Snapshot.Keys))
	for i, k := range r.Snapshot.Keys {
		var err error
		if all[i], err = k.kv(k.Rev); err != nil {
			return err
		}
	}
	f.state.replace(all, r.Rev)
	return nil
}

// snapshot returns the state as the first record of a file.
func (f *File) snapshot() record {
	s := &fileSnapshot{Version: fileVersion, Store: f.id}
	for id, l := range f.state.leases {
		s.Leases = append(s.Leases, fileLease{ID: id.String(), TTL: l.ttl, Beats: l.beats})
	}
	for _, kv := range f.state.list("") {
		s.Keys = append(s.Keys, toFileKV(kv))
	}
	return record{Rev: f.state.rev, Snapshot: s}
}
