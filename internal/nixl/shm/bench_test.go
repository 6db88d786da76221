//go:build linux

package shm_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/fenced"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/nixltest/processtest"
	"github.com/dynctl/dynctl/internal/nixl/shm"
)

// BenchmarkTwoProcesses moves memory of this process into and out of that of
// another one, with a notification at the end; memcpy copies the same bytes inside
// this process with one goroutine. The pool of the agents has copies goroutines.
func BenchmarkTwoProcesses(b *testing.B) {
	const most = 64 << 20
	b.Setenv(processtest.SizeEnv, strconv.Itoa(most))
	c := processes.Processes().Start(b, processtest.Target)
	src, dst := arena(b, most), arena(b, most)
	for _, copies := range []int{1, 2} {
		pool := fenced.NewPool(copies)
		e := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{shm.New(pool, fenced.Options{})} }}
		a := e.Agent(b, fmt.Sprint("parent-", copies))
		r, err := a.Register(src, nixl.DRAM)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := a.LoadRemote(c.Offer.Blob); err != nil {
			b.Fatal(err)
		}
		for _, shape := range []struct{ total, block uint64 }{
			{64 << 10, 64 << 10}, {256 << 10, 256 << 10}, {1 << 20, 1 << 20}, {4 << 20, 4 << 20}, {16 << 20, 16 << 20}, {64 << 20, 64 << 20},
			{64 << 20, 64 << 10}, {64 << 20, 1 << 20},
		} {
			rnd := rand.New(rand.NewPCG(1, 1))
			n := int(shape.total / shape.block)
			there := func(off, n uint64) nixl.Desc { return nixl.Desc{Addr: c.Offer.Desc.Addr + off, Len: n} }
			local, from := nixltest.Blocks(rnd, r.Desc, n, shape.block)
			remote, to := nixltest.Blocks(rnd, there, n, shape.block)
			name := fmt.Sprintf("%dKiB-in-%dKiB", shape.total>>10, shape.block>>10)
			if copies == 1 {
				b.Run("memcpy/"+name, func(b *testing.B) {
					b.SetBytes(int64(shape.total))
					for b.Loop() {
						for i := range from {
							f, t := uint64(from[i])*shape.block, uint64(to[i])*shape.block
							copy(dst.Bytes()[t:t+shape.block], src.Bytes()[f:f+shape.block])
						}
					}
				})
			}
			for op, id := range map[nixl.Op]string{nixl.Write: c.Offer.Write, nixl.Read: c.Offer.Read} {
				x := nixltest.New(b, a, op, local, remote, "child", nixl.TransferOpts{Ticket: processtest.ParseTicket(b, id)})
				b.Run(fmt.Sprintf("%s-%d/%s", op, copies, name), func(b *testing.B) {
					b.SetBytes(int64(shape.total))
					for b.Loop() {
						nixltest.WantStatus(b, nixltest.Do(b, x), nixl.Success)
					}
				})
			}
		}
		_ = a.Close()
	}
}

func arena(b *testing.B, size int) *nixl.Arena {
	b.Helper()
	ar, err := nixl.NewArena(int64(size))
	if err != nil {
		b.Fatal(err)
	}
	nixltest.Fill(ar.Bytes(), uint64(os.Getpid()))
	b.Cleanup(func() { _ = ar.Close() })
	return ar
}
