package store_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// The test binary is also the other process: with these variables set, it uses a store
// instead of testing.
const (
	envFileDir  = "STORE_TEST_FILE_DIR"
	envFileName = "STORE_TEST_FILE_NAME"
	envFileWhat = "STORE_TEST_FILE_WHAT"
)

// work is what the other process can do.
var work = map[string]func(ctx context.Context, s store.Store, name string) error{
	"count": func(ctx context.Context, s store.Store, _ string) error { return count(ctx, s, countTo) },
	"write": writeForEver,
}

// otherProcess does what the variables say, if they are set, and ends the process.
func otherProcess() {
	for name, serve := range map[string]func(config string) error{envNATSMember: serveNATS, envEtcdMember: serveEtcd} {
		if member := os.Getenv(name); member != "" {
			fmt.Fprintln(os.Stderr, serve(member))
			os.Exit(1)
		}
	}
	dir := os.Getenv(envFileDir)
	if dir == "" {
		return
	}
	s, err := store.NewFile(store.FileConfig{Dir: dir}, storetest.Discard)
	if err == nil {
		ctx, name := context.Background(), os.Getenv(envFileName)
		err = work[os.Getenv(envFileWhat)](ctx, s, name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := s.Close(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

const countTo = 100

// count adds to a counter by compare-and-swap.
func count(ctx context.Context, s store.Store, times int) error {
	for done := 0; done < times; {
		kv, err := s.Get(ctx, "p/counter")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(kv.Value))
		if err != nil {
			return err
		}
		if _, err := s.CompareAndSwap(ctx, "p/counter", kv.ModRevision, strconv.AppendInt(nil, int64(n+1), 10)); err == nil {
			done++
		} else if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// writeForEver writes keys under a lease, prints each once it is written, and does not end.
// The values are long, so that the file is replaced often.
func writeForEver(ctx context.Context, s store.Store, name string) error {
	keeper, err := s.KeepLease(ctx, storetest.TTL, storetest.Discard)
	if err != nil {
		return err
	}
	if _, err := s.Put(ctx, "live/"+name, nil, store.WithLease(keeper.ID())); err != nil {
		return err
	}
	fmt.Println(keeper.ID())
	value := bytes.Repeat([]byte{' '}, 50_000)
	for i := 0; ; i++ {
		copy(value, fmt.Sprint(i, " "))
		if _, err := s.Put(ctx, fmt.Sprintf("k/%s/%d", name, i%3), value); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// startOther starts another process on the store.
func startOther(t *testing.T, dir, what, name string) (cmd *exec.Cmd, out io.Reader) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envFileDir+"="+dir, envFileWhat+"="+what, envFileName+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := orphan.Start(cmd); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// Three processes change one key, none of their changes is lost, and each watch sees all.
func TestFileProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openFile(t, dir)
	if _, err := s.Create(t.Context(), "p/counter", []byte("0")); err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	storetest.Next(t, w)
	var others []*exec.Cmd
	for range 2 {
		cmd, _ := startOther(t, dir, "count", "")
		others = append(others, cmd)
	}
	if err := count(t.Context(), s, countTo); err != nil {
		t.Error(err)
	}
	for i := range 3 * countTo {
		if ev := storetest.Next(t, w); ev.Type != store.Put || string(ev.KV.Value) != strconv.Itoa(i+1) {
			t.Fatalf("event %d: %s %q", i+1, ev.Type, ev.KV.Value)
		}
	}
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A process is killed at any moment of its writes. What it was told is written is there; the
// store answers at once; its lease ends, and whoever watches sees that.
func TestFileKilledWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openFile(t, dir)
	live, err := s.Watch(t.Context(), "live/")
	if err != nil {
		t.Fatal(err)
	}
	alive := map[string]string{}
	for round := range 6 {
		name := fmt.Sprint("w", round)
		cmd, out := startOther(t, dir, "write", name)
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatal("the other process says nothing")
		}
		id, err := cluster.ParseInstanceID(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		storetest.Follow(t, live, alive, "it lives", func() bool { _, ok := alive["live/"+name]; return ok })
		written := -1
		time.AfterFunc(50*time.Millisecond+rand.N(200*time.Millisecond), func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			if written, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
		newest := -1
		all, _, err := s.List(ctx, "k/"+name+"/")
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil { // a busy machine may not come to the lock in time
			all, _, err = s.List(ctx, "k/"+name+"/")
		}
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range all {
			var n int
			fmt.Sscan(string(kv.Value[:10]), &n)
			newest = max(newest, n)
		}
		if newest != written && newest != written+1 { // it may have been killed before it could say so
			t.Errorf("round %d: %d was written, %d is there", round, written, newest)
		}
		storetest.Follow(t, live, alive, "it is dead", func() bool { return len(alive) == 0 })
		if _, _, err := openFile(t, dir).LeaseTTL(t.Context(), id); err == nil {
			t.Error("its lease lives on")
		}
	}
}
