package nixl_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynctl/dynctl/internal/nixl"
	"github.com/dynctl/dynctl/internal/nixl/local"
	"github.com/dynctl/dynctl/internal/nixl/nixltest"
	"github.com/dynctl/dynctl/internal/nixl/tcp"
)

const benchBytes = 64 << 20

// BenchmarkTransfer moves 64 MiB per round, in blocks in random order, with a
// notification at the end; memcpy copies the same blocks.
func BenchmarkTransfer(b *testing.B) {
	for _, size := range []uint64{64 << 10, 1 << 20, 8 << 20} {
		name := fmt.Sprintf("%dKiB", size>>10)
		b.Run("memcpy/"+name, func(b *testing.B) { benchCopy(b, size) })
		b.Run("local/"+name, func(b *testing.B) {
			reg := local.NewRegistry(0)
			benchTransfer(b, nixl.Write, size, func() nixl.Transport { return reg.Transport() })
		})
		b.Run("tcp/"+name, func(b *testing.B) {
			benchTransfer(b, nixl.Write, size, func() nixl.Transport { return tcp.New(tcp.Options{}) })
		})
		b.Run("tcp-read/"+name, func(b *testing.B) {
			benchTransfer(b, nixl.Read, size, func() nixl.Transport { return tcp.New(tcp.Options{}) })
		})
	}
	b.Run("tcp-latency/4KiB", func(b *testing.B) {
		benchRounds(b, nixl.Write, 4<<10, 4<<10, func() nixl.Transport { return tcp.New(tcp.Options{}) })
	})
}

func benchArena(b *testing.B, size uint64) *nixl.Arena {
	ar, err := nixl.NewArena(int64(size))
	if err != nil {
		b.Fatal(err)
	}
	nixltest.Fill(ar.Bytes(), 1)
	b.Cleanup(func() { _ = ar.Close() })
	return ar
}

func benchCopy(b *testing.B, size uint64) {
	src, dst := benchArena(b, benchBytes).Bytes(), benchArena(b, benchBytes).Bytes()
	rnd := rand.New(rand.NewPCG(1, 1))
	from, to := rnd.Perm(int(benchBytes/size)), rnd.Perm(int(benchBytes/size))
	b.SetBytes(benchBytes)
	for b.Loop() {
		for i := range from {
			f, t := uint64(from[i])*size, uint64(to[i])*size
			copy(dst[t:t+size], src[f:f+size])
		}
	}
}

func benchTransfer(b *testing.B, op nixl.Op, size uint64, transport func() nixl.Transport) {
	benchRounds(b, op, benchBytes, size, transport)
}

func benchRounds(b *testing.B, op nixl.Op, total, size uint64, transport func() nixl.Transport) {
	e := nixltest.Env{Transports: func() []nixl.Transport { return []nixl.Transport{transport()} }}
	x, y := e.Agent(b, "x"), e.Agent(b, "y")
	rx, err := x.Register(benchArena(b, total), nixl.DRAM)
	if err != nil {
		b.Fatal(err)
	}
	ry, err := y.Register(benchArena(b, total), nixl.DRAM)
	if err != nil {
		b.Fatal(err)
	}
	nixltest.Load(b, x, y)
	rnd := rand.New(rand.NewPCG(1, 1))
	here, _ := nixltest.Blocks(rnd, rx.Desc, int(total/size), size)
	there, _ := nixltest.Blocks(rnd, ry.Desc, int(total/size), size)
	t := nixltest.New(b, x, op, here, there, "y", nixl.TransferOpts{
		Ticket: nixltest.Ticket(b, y, op, ry.Desc(0, total)), Notify: []byte("done"),
	})
	b.SetBytes(int64(total))
	b.ReportAllocs()
	for b.Loop() {
		t.Post()
		nixltest.Next(b, y)
		if err := nixltest.End(b, t); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	_, _ = x.Close(), y.Close()
}
