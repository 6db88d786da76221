package embedded

import "time"

const (
	// etcdRevisions is how many revisions etcd keeps for watches that fall behind. One
	// that is further behind lists its prefix anew.
	etcdRevisions = "10000"
	// spaceEvery is the interval at which the size of etcd's file is looked at.
	spaceEvery = 10 * time.Minute
	// spareBytes is the free space in the file that is never worth a defragmentation.
	spareBytes = 64 << 20
)

// tidy gives free space in etcd's file back to the disk from time to time, until the
// server stops. Compaction frees space within the file only.
func (e *Etcd) tidy() {
	defer close(e.tidied)
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-tick.C:
			e.shrink()
		}
	}
}

// shrink defragments etcd's file if that pays. Meanwhile etcd answers nothing: it copies
// what is in use, which is less than half of the file.
func (e *Etcd) shrink() {
	file := e.server.Server.Backend()
	size, used := file.Size(), file.SizeInUse()
	if !pays(size, used) {
		return
	}
	begin := time.Now()
	if err := file.Defrag(); err != nil {
		e.log.Warn("cannot defragment etcd, will try again", "err", err)
		return
	}
	e.log.Info("etcd defragmented", "bytes_before", size, "bytes_after", file.Size(), "took", time.Since(begin))
}

// pays reports whether more than half of a file is free, and not just a little.
func pays(size, used int64) bool { return size-used > spareBytes && used < size/2 }
