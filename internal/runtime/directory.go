package runtime

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// directories list the instances of endpoints, each for all clients of this process. A
// change costs one copy of the list, however many clients there are.
var directories = store.NewShares(decodeRegistration, list, store.Linger(store.LingerFor), store.Track())

// directory is one client's part in a list.
type directory = store.Share[registration, *listing]

// listing is the state of a directory at some time. It never changes.
type listing struct {
	instances []cluster.Instance // sorted by id
	revisions []store.Revision   // of their registrations
	version   int                // increases when the instances differ, as opposed to their revisions
	lost      bool               // registrations lingered
}

// find returns the index of an instance, or where it would be.
func (l *listing) find(id cluster.InstanceID) (int, bool) {
	return slices.BinarySearchFunc(l.instances, id, func(i cluster.Instance, id cluster.InstanceID) int { return cmp.Compare(i.InstanceID, id) })
}

// list returns the listing of what was found, given the one before the latest changes.
func list(found *store.Prefix[registration], old *listing) *listing {
	keys, _ := found.Touched()
	next := &listing{lost: found.Lingering()}
	differs := false
	if old == nil || old.lost || next.lost {
		next.fill(registered(found))
		differs = old == nil || !slices.Equal(next.instances, old.instances)
	} else {
		next.instances, next.revisions = slices.Clone(old.instances), slices.Clone(old.revisions)
		for _, key := range keys {
			reg, there := found.Get(key)
			differs = next.set(key, reg, there) || differs
		}
	}
	if old != nil {
		next.version = old.version
	}
	if differs {
		next.version++
	}
	return next
}

// registered returns the registrations by key. It omits those that the store has lost if
// their worker has registered again.
func registered(found *store.Prefix[registration]) map[string]registration {
	all := found.Snapshot()
	again := map[string]bool{}
	for key, reg := range all {
		if !found.Lingers(key) {
			again[reg.instance.Worker] = true
		}
	}
	left := make(map[string]registration, len(all))
	for key, reg := range all {
		if reg.instance.Worker == "" || !again[reg.instance.Worker] || !found.Lingers(key) {
			left[key] = reg
		}
	}
	return left
}

// fill lists registrations.
func (l *listing) fill(found map[string]registration) {
	all := slices.SortedFunc(maps.Values(found), func(a, b registration) int {
		return cmp.Compare(a.instance.InstanceID, b.instance.InstanceID)
	})
	for _, reg := range all {
		l.instances, l.revisions = append(l.instances, reg.instance), append(l.revisions, reg.revision)
	}
}

// set lists the registration of a key, or that there is none. It reports whether that is
// another instance, as opposed to another registration of the same one.
func (l *listing) set(key string, reg registration, there bool) bool {
	id := reg.instance.InstanceID
	if !there {
		var err error
		if id, err = cluster.ParseInstanceID(key[strings.LastIndexByte(key, '/')+1:]); err != nil {
			return false // it was never listed: its key would not have been that of its instance
		}
	}
	i, known := l.find(id)
	switch {
	case there && known:
		differs := l.instances[i] != reg.instance
		l.instances[i], l.revisions[i] = reg.instance, reg.revision
		return differs
	case there:
		l.instances, l.revisions = slices.Insert(l.instances, i, reg.instance), slices.Insert(l.revisions, i, reg.revision)
	case known:
		l.instances, l.revisions = slices.Delete(l.instances, i, i+1), slices.Delete(l.revisions, i, i+1)
	}
	return there || known
}
