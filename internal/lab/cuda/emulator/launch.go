package emulator

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Launch says how a kernel runs.
type Launch struct {
	Grid, Block [3]int // zeros count as ones
	SharedBytes int    // dynamic
	Args        []byte // as the driver gets them, each at a multiple of its size
	Memory      Memory
	// TensorMap decodes the 128 bytes of a tensor map; nil where there are none.
	TensorMap func(encoded []byte) (*TensorMap, error)
	Seed      uint64 // chooses the order of warps
	Limit     int    // of instructions of a block's warps, 0 for a quarter of a billion
}

func (l *Launch) limit() int {
	if l.Limit > 0 {
		return l.Limit
	}
	return 1 << 28
}

// grid is a launch that runs.
type grid struct {
	kernel  *Kernel
	launch  Launch
	threads int // of a block
	findings
}

func (g *grid) find(b *block, check Check, in *instr, thread int, address uint64, format string, args ...any) {
	known, enough := g.again(in.at.Line, check)
	if b.stopped = b.stopped || enough; known {
		return
	}
	g.add(&Finding{
		Check: check, Kernel: g.kernel.Name, File: g.kernel.module.file, Line: in.at.Line, Source: in.at.Source, Instruction: in.at.String(),
		Block: b.at, Thread: b.threadAt(thread), Address: address, Detail: fmt.Sprintf(format, args...),
	})
}

// Run executes the kernel. The error has what is wrong with the launch, or a [Finding]
// for each line of the kernel that is wrong.
func (k *Kernel) Run(l Launch) error {
	g := &grid{kernel: k, launch: l}
	if err := g.check(); err != nil {
		return fmt.Errorf("launch %s: %w", k.Name, err)
	}
	blocks := int64(g.launch.Grid[0]) * int64(g.launch.Grid[1]) * int64(g.launch.Grid[2])
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(int64(runtime.GOMAXPROCS(0)), blocks) {
		workers.Go(func() {
			b := newBlock(g)
			for {
				n := next.Add(1) - 1
				if n >= blocks || g.ended() {
					return
				}
				x, y := int64(g.launch.Grid[0]), int64(g.launch.Grid[1])
				b.run([3]int{int(n % x), int(n / x % y), int(n / x / y)}, uint64(n))
			}
		})
	}
	workers.Wait()
	return g.err()
}

// check looks at what a driver would refuse.
func (g *grid) check() error {
	l := &g.launch
	for i := range 3 {
		l.Grid[i], l.Block[i] = max(l.Grid[i], 1), max(l.Block[i], 1)
	}
	g.threads = l.Block[0] * l.Block[1] * l.Block[2]
	most := g.kernel.f.MaxThreads
	if l.Grid[0] > 1<<31-1 || l.Grid[1] > 1<<16-1 || l.Grid[2] > 1<<16-1 {
		return fmt.Errorf("a grid of %d", l.Grid)
	}
	if limit := most[0] * most[1] * most[2]; g.threads > 1024 || limit > 0 && g.threads > limit {
		return fmt.Errorf("%d threads in a block, where the kernel allows %d", g.threads, limit)
	}
	if g.kernel.f.Required && l.Block != most {
		return fmt.Errorf("a block of %d, where the kernel wants %d", l.Block, most)
	}
	if l.SharedBytes < 0 || l.SharedBytes > mostShared {
		return fmt.Errorf("%d bytes of dynamic shared memory", l.SharedBytes)
	}
	if want := g.kernel.f.ParamBytes; int64(len(l.Args)) < want {
		return fmt.Errorf("%d bytes of arguments, and the kernel has more parameters, of %d bytes", len(l.Args), want)
	}
	if l.Memory == nil {
		return errors.New("no memory")
	}
	return nil
}
