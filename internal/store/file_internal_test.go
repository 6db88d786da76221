package store

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/patience"
)

// openTest opens a store after prepare has changed it.
func openTest(t *testing.T, dir string, prepare func(*File)) *File {
	t.Helper()
	f, err := newFile(FileConfig{Dir: dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(f)
	}
	f.start()
	t.Cleanup(func() { f.Close() })
	return f
}

func mustPut(t *testing.T, f *File, key, value string, opts ...PutOption) Revision {
	t.Helper()
	rev, err := f.Put(t.Context(), key, []byte(value), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// nextEvent returns the next event of a watch.
func nextEvent(t *testing.T, w *Watcher) Event {
	t.Helper()
	select {
	case ev := <-w.Events():
		return ev
	case <-time.After(patience.Soon):
		t.Fatal("no event")
	}
	return Event{}
}

// A process that is killed in the middle of a write leaves any part of a record. The store
// opens, without the record, and goes on.
func TestFileTornRecord(t *testing.T) {
	dir := t.TempDir()
	f := openTest(t, dir, nil)
	mustPut(t, f, "a", "1")
	whole, err := os.ReadFile(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, f, "a", "2")
	f.Close()
	written, err := os.ReadFile(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole); cut < len(written); cut++ {
		for _, tail := range []string{"", "\x00\x00\n\x00"} { // of a power failure
			if err := os.WriteFile(f.log.path, append(written[:cut:cut], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			s := openTest(t, dir, nil)
			kv, err := s.Get(t.Context(), "a")
			if err != nil || string(kv.Value) != "1" || kv.ModRevision != 1 {
				t.Fatalf("cut at %d: got %q at %d, %v", cut, kv.Value, kv.ModRevision, err)
			}
			if rev := mustPut(t, s, "b", "x"); rev != 2 {
				t.Fatalf("cut at %d: the next revision is %d, want 2", cut, rev)
			}
			s.Close()
			again := openTest(t, dir, nil)
			if all, rev, err := again.List(t.Context(), ""); err != nil || len(all) != 2 || rev != 2 {
				t.Fatalf("cut at %d: after another put: %v at %d, %v", cut, all, rev, err)
			}
			again.Close()
		}
	}
}

// Nobody guesses what a damaged file had: changes behind the damage were acknowledged.
func TestFileDamaged(t *testing.T) {
	dir := t.TempDir()
	f := openTest(t, dir, nil)
	mustPut(t, f, "a", "1")
	lease, err := f.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, f, "b", "2")
	f.Close()
	body, err := os.ReadFile(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(body), lease.ID.String(), strings.Repeat("0", len(lease.ID.String())), 1)
	if err := os.WriteFile(f.log.path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir, nil)
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, ErrUnavailable) || !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), s.log.path) {
		t.Errorf("got %v, want %v", err, errDamaged)
	}
	if after, err := os.ReadFile(f.log.path); err != nil || string(after) != damaged {
		t.Errorf("the damaged file was changed: %v", err)
	}
	if err := os.Truncate(f.log.path, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, errDamaged) {
		t.Errorf("a file that became shorter: got %v, want %v", err, errDamaged)
	}
}

func TestFileOfAnotherVersion(t *testing.T) {
	f := openTest(t, t.TempDir(), nil)
	line, err := record{Snapshot: &fileSnapshot{Version: fileVersion + 1}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.log.path, line, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, f.dir, nil)
	if _, err := s.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("got %v", err)
	}
}

// Beats that a power failure left behind a hole are no damage.
func TestFileLostBeats(t *testing.T) {
	dir := t.TempDir()
	f := openTest(t, dir, nil)
	lease, err := f.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := f.keepAlive(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	beats, err := os.ReadFile(f.log.path)
	if err != nil {
		t.Fatal(err)
	}
	beats[len(body)] ^= 1 // the first of two is lost
	if err := os.WriteFile(f.log.path, beats, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir, nil)
	if ids, err := s.Leases(t.Context()); err != nil || len(ids) != 1 {
		t.Errorf("leases: %v, %v", ids, err)
	}
}

// Watchers of other processes get every change in order over replacements of the file,
// whether or not changes are announced.
func TestFileWatchOverCompaction(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprintf("deaf=%t", deaf), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			small := func(f *File) { f.compact, f.deaf = 512, deaf }
			writer, reader := openTest(t, dir, small), openTest(t, dir, small)
			lease, err := writer.GrantLease(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			mustPut(t, writer, "p/first", "", WithLease(lease.ID))
			held, err := os.Open(writer.log.path) // so that no later file gets its number
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			first, err := held.Stat()
			if err != nil {
				t.Fatal(err)
			}
			w, err := reader.Watch(t.Context(), "p/")
			if err != nil {
				t.Fatal(err)
			}
			if ev := nextEvent(t, w); ev.Type != Resync || len(ev.All) != 1 {
				t.Fatalf("first event: %+v", ev)
			}
			const n = 100
			go func() {
				for i := range n {
					_, _ = writer.Put(t.Context(), "p/k", fmt.Append(nil, i))
					if i%10 == 9 { // now and then, so that the file is replaced between two reads
						sleep(t.Context(), 3*time.Millisecond)
					}
				}
				_ = writer.RevokeLease(t.Context(), lease.ID)
			}()
			seen, gone := -1, false // gone with a resync
			for seen < n-1 {
				ev := nextEvent(t, w)
				got := -1
				switch {
				case ev.Type == Put:
					fmt.Sscan(string(ev.KV.Value), &got)
					if got != seen+1 {
						t.Fatalf("put %d after %d", got, seen)
					}
				case ev.Type == Resync && deaf: // several files were replaced between two reads
					for _, kv := range ev.All {
						if kv.Key == "p/k" {
							fmt.Sscan(string(kv.Value), &got)
						}
					}
					gone = ev.All[0].Key != "p/first"
					if got <= seen {
						t.Fatalf("a resync with %d after %d", got, seen)
					}
				default:
					t.Fatalf("after %d: %+v", seen, ev)
				}
				seen = got
			}
			for !gone {
				ev := nextEvent(t, w)
				gone = ev.Type == Delete && ev.KV.Key == "p/first" || deaf && ev.Type == Resync && len(ev.All) == 1
				if !gone {
					t.Fatalf("last event: %+v, want the key of the lease to be deleted", ev)
				}
			}
			if now, err := os.Stat(writer.log.path); err != nil || os.SameFile(first, now) {
				t.Errorf("the file was never replaced: %v", err)
			}
		})
	}
}

// A directory that is removed is made again, empty: whoever lives notices that its lease is
// lost, and registers again.
func TestFileLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	a, b := openTest(t, dir, nil), openTest(t, dir, nil)
	keeper, err := a.KeepLease(t.Context(), time.Second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	last := mustPut(t, a, "k", "1", WithLease(keeper.ID()))
	w, err := b.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if ev := nextEvent(t, w); len(ev.All) != 1 {
		t.Fatalf("before: %+v", ev)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if ev := nextEvent(t, w); ev.Type != Resync || len(ev.All) != 0 {
		t.Errorf("after: %+v, want a resync with nothing", ev)
	}
	select {
	case <-keeper.Lost():
	case <-time.After(patience.Soon):
		t.Fatal("the loss of the lease goes unnoticed")
	}
	if rev := mustPut(t, a, "k", "2"); rev <= last {
		t.Errorf("revisions go back from %d to %d", last, rev)
	}
	if ev := nextEvent(t, w); ev.Type != Put || string(ev.KV.Value) != "2" {
		t.Errorf("then: %+v", ev)
	}
}

func TestFileBelongsToItsOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "store")
	f := openTest(t, dir, func(f *File) { f.compact = 1 })
	mustPut(t, f, "k", "1")
	if err := os.WriteFile(filepath.Join(dir, fileTempPrefix+"left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustPut(t, f, "k", strings.Repeat("x", 10000))
	mustPut(t, f, "k", "3")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if strings.HasPrefix(d.Name(), fileTempPrefix) {
			t.Errorf("%s was left by a killed process and is still there", path)
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFileRefusesBadDirectories(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", file, filepath.Join(file, "below")} {
		if f, err := NewFile(FileConfig{Dir: dir}, slog.New(slog.DiscardHandler)); err == nil {
			f.Close()
			t.Errorf("%q was opened", dir)
		}
	}
}

// Any value comes back from the file as it was.
func TestFileValues(t *testing.T) {
	dir := t.TempDir()
	values := []string{"", "text", `{"a":"<&>"}`, "two\nlines\r\t", "\x00\x01", "\xff\xfe", "\u2028 é \ufffd"}
	f := openTest(t, dir, nil)
	key := func(i int) string { return fmt.Sprintf("k/%d\n\"%%/é", i) }
	for i, v := range values {
		mustPut(t, f, key(i), v)
	}
	for _, key := range []string{"", "\xff"} {
		if _, err := f.Put(t.Context(), key, nil); err == nil {
			t.Errorf("the key %q was written", key)
		}
	}
	f.Close()
	again := openTest(t, dir, nil)
	for i, v := range values {
		if kv, err := again.Get(t.Context(), key(i)); err != nil || string(kv.Value) != v {
			t.Errorf("%q: got %q, %v", v, kv.Value, err)
		}
	}
}
