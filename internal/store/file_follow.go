package store

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/dynctl/dynctl/internal/cluster"
)

// follow reads what others write until ctx ends, and ends the leases that nobody renews.
func (f *File) follow(ctx context.Context) {
	var news *fsnotify.Watcher
	var added bool
	if !f.deaf {
		news, added = f.announcements()
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	if news != nil {
		defer func() { _ = news.Close() }() // nobody waits for announcements any more
		events, failures = news.Events, news.Errors
	}
	tick := time.NewTicker(f.poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-events:
			if filepath.Base(ev.Name) == fileLogName {
				f.readNews()
			}
		case err := <-failures: // such as an overflow: the tick reads all
			f.logger.Debug("announcements of changes were lost", "dir", f.dir, "err", err)
		case <-tick.C:
			f.check(ctx)
			if news != nil && (!added || len(news.WatchList()) == 0) { // the directory was removed
				added = news.Add(f.dir) == nil
			}
		}
	}
}

// announcements has the system announce changes in the directory. Where it cannot, for want
// of watches or on a file system of another kind, the store looks at intervals.
func (f *File) announcements() (news *fsnotify.Watcher, added bool) {
	news, err := fsnotify.NewBufferedWatcher(fileQueueLimit)
	if err == nil {
		err = news.Add(f.dir)
	}
	if err != nil {
		f.logger.Warn("changes by others are seen with a delay", "dir", f.dir, "delay", f.poll, "err", err)
	}
	return news, err == nil
}

// readNews reads new records without the lock. A record that is not whole yet is read later.
func (f *File) readNews() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readLocked(false); err != nil {
		f.logger.Debug("cannot read changes yet", "dir", f.dir, "err", err) // the tick says so
	}
}

// check reads the file under the lock, which file systems of other machines need to show what
// those have written, and ends overdue leases.
func (f *File) check(ctx context.Context) {
	overdue, err := callFile(ctx, f, "check leases", "", func() ([]cluster.InstanceID, error) {
		ids := f.state.overdue()
		if len(ids) == 0 {
			return nil, nil
		}
		return ids, f.endLeases(ids)
	})
	if err == nil && len(overdue) > 0 {
		f.logger.Info("leases have expired", "dir", f.dir, "leases", len(overdue))
	}
}
