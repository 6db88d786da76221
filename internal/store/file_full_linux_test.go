package store_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/store"
)

func init() { work["fill"] = fillUp }

// A full disk, here a limit of this process on the length of files, fails writes and nothing
// else; what was written in part is taken back.
func TestFileDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _ := startOther(t, dir, "fill", "")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if kv, err := openFile(t, dir).Get(t.Context(), "after"); err != nil || string(kv.Value) != "room" {
		t.Errorf("from another process: %q, %v", kv.Value, err)
	}
}

func fillUp(ctx context.Context, s store.Store, _ string) error {
	signal.Ignore(unix.SIGXFSZ)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	room := limit
	limit.Cur = 5000
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	w, err := s.Watch(ctx, "k")
	if err != nil {
		return err
	}
	value := []byte(strings.Repeat("x", 300))
	written, refused := 0, 0
	for i := 0; refused < 3; i++ {
		_, err := s.Put(ctx, fmt.Sprint("k", i), value)
		switch {
		case err == nil && refused == 0:
			written++
		case !errors.Is(err, store.ErrUnavailable):
			return fmt.Errorf("put %d, after %d refused ones: %w", i, refused, err)
		default:
			refused++
		}
	}
	kvs, rev, err := s.List(ctx, "k")
	if err != nil || len(kvs) != written || int(rev) != written || written == 0 {
		return fmt.Errorf("%d keys at revision %d of %d written: %w", len(kvs), rev, written, err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &room); err != nil {
		return err
	}
	if _, err := s.Put(ctx, "after", []byte("room")); err != nil {
		return err
	}
	rev, err = s.Put(ctx, "k-last", value)
	if err != nil || int(rev) != written+2 {
		return fmt.Errorf("revision %d after %d written and 2: %w", rev, written, err)
	}
	for seen := 0; seen < written+1; { // no event of what was refused
		switch ev := <-w.Events(); {
		case ev.Type == store.Resync:
			seen = len(ev.All)
		case string(ev.KV.Value) != string(value):
			return fmt.Errorf("an event of %d bytes", len(ev.KV.Value))
		default:
			seen++
		}
	}
	return nil
}
