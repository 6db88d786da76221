package store

import (
	"log/slog"
	"os"
	"reflect"
	"testing"
	"time"
)

// Whatever the file holds, a store either refuses it or goes on with it: what it then reads,
// another process reads, too.
func FuzzFileLog(f *testing.F) {
	var whole []byte
	for _, r := range []record{
		{Snapshot: &fileSnapshot{Version: fileVersion, Store: "a", Leases: []fileLease{{ID: "1", TTL: time.Second}}, Keys: []fileKV{{Key: "k", Text: "v", Rev: 1, Lease: "1"}}}, Rev: 1},
		{Rev: 2, Put: &fileKV{Key: "p", Bytes: []byte{0}}},
		{Hold: &fileLease{ID: "1", TTL: time.Second, Beats: 1}},
		{Rev: 3, Delete: "p"},
		{Rev: 4, End: []string{"1"}},
	} {
		line, err := r.encode()
		if err != nil {
			f.Fatal(err)
		}
		whole = append(whole, line...)
		f.Add(whole)
	}
	f.Add(whole[:len(whole)-1])
	f.Add(append([]byte("\x00\n"), whole...))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		read := func() (*File, error) {
			s, err := newFile(FileConfig{Dir: dir}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s, s.readLocked(true)
		}
		s, err := newFile(FileConfig{Dir: dir}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := os.WriteFile(s.log.path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		first, err := read()
		if err != nil {
			return
		}
		if err := first.append(record{Rev: first.state.rev + 1, Put: &fileKV{Key: "new", Text: "v"}}, true); err != nil {
			t.Fatal(err)
		}
		second, err := read()
		if err != nil {
			t.Fatalf("after another write: %v", err)
		}
		if !reflect.DeepEqual(second.state.data, first.state.data) || second.state.rev != first.state.rev || len(second.state.leases) != len(first.state.leases) {
			t.Errorf("read as %+v, then as %+v", first.state, second.state)
		}
	})
}
