package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// readAll reads every cache line of all pieces with the given number of goroutines.
func readAll(cores int, pieces [][]byte) {
	var chunks [][]byte
	for _, p := range pieces {
		for len(p) > 0 {
			n := min(len(p), 4<<20)
			chunks = append(chunks, p[:n])
			p = p[n:]
		}
	}
	sums := make([]uint64, cores)
	var wg sync.WaitGroup
	for i := range cores {
		// Each goroutine reads a contiguous run, which suits the processor's prefetcher.
		mine := chunks[i*len(chunks)/cores : (i+1)*len(chunks)/cores]
		wg.Go(func() {
			for _, c := range mine {
				sums[i] += touch(c)
			}
		})
	}
	wg.Wait()
}

// touch loads one word of each line of 64 bytes. The whole line is transferred, so the
// memory and not the loop is the limit.
func touch(b []byte) (sum uint64) {
	for len(b) >= 256 {
		p := b[:256:256]
		sum += binary.LittleEndian.Uint64(p) + binary.LittleEndian.Uint64(p[64:]) +
			binary.LittleEndian.Uint64(p[128:]) + binary.LittleEndian.Uint64(p[192:])
		b = b[256:]
	}
	return sum
}

// scratch is memory off the heap for as long as a section runs.
type scratch struct {
	unmap []func() error
}

// take returns n bytes of resident memory: every page was written.
func (s *scratch) take(n int) ([]byte, error) {
	b, unmap, err := mapMemory(n)
	if err != nil {
		return nil, fmt.Errorf("scratch memory of %s: %w", bytesText(int64(n)), err)
	}
	s.unmap = append(s.unmap, unmap)
	for i := 0; i < n; i += 4096 {
		b[i] = byte(i >> 12)
	}
	return b, nil
}

func (s *scratch) close() {
	for _, f := range s.unmap {
		_ = f() // memory of this process only
	}
}

// Names of the cases that measure the speed of reading memory.
const (
	caseRead1   = "read, 1 core"
	caseReadAll = "read, all cores"
)

const keyGBps = "gbps"

// readCase reads memory repeatedly for as long as a decode case lasts, so that both get
// the same share of a busy machine.
func readCase(name string, window time.Duration, cores int, pieces ...[]byte) Case {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	return Case{name, func(ctx context.Context) (Sample, error) {
		begin := time.Now()
		for n := 1; ; n++ {
			readAll(cores, pieces)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if took := time.Since(begin); took >= window {
				return Sample{keyGBps: float64(n) * float64(total) / 1e9 / took.Seconds()}, nil
			}
		}
	}}
}
