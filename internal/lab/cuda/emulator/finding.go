package emulator

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// Check is a kind of mistake.
type Check string

// What is looked for.
const (
	MemoryCheck        Check = "memory"
	RaceCheck          Check = "race"
	SyncCheck          Check = "sync"
	UninitializedCheck Check = "uninitialized"
	// EndCheck is for what does not end.
	EndCheck Check = "end"
)

// Finding is a mistake of a kernel.
type Finding struct {
	Check         Check
	Kernel        string
	File          string // of the PTX
	Line          int
	Source        ptx.Location // that the line was made from, if it says so
	Instruction   string
	Block, Thread [3]int
	Address       uint64 // 0 for none
	Detail        string
	Times         int // that the line made it
}

// Error implements error.
func (f *Finding) Error() string {
	text := fmt.Sprintf("%s: %s:%d", f.Kernel, f.File, f.Line)
	if f.Source.Line > 0 {
		text += fmt.Sprintf(" (%s:%d)", f.Source.File, f.Source.Line)
	}
	text += fmt.Sprintf(": %s: %s: block %d,%d,%d thread %d,%d,%d: ", f.Instruction, f.Check,
		f.Block[0], f.Block[1], f.Block[2], f.Thread[0], f.Thread[1], f.Thread[2])
	if f.Address != 0 {
		text += fmt.Sprintf("address %#x: ", f.Address)
	}
	text += f.Detail
	if f.Times > 1 {
		text += fmt.Sprintf(" (and %d more)", f.Times-1)
	}
	return text
}

// mostFindings of a launch are told; after that it ends.
const mostFindings = 16

// findings collects the findings of a launch.
type findings struct {
	mu   sync.Mutex
	all  []*Finding
	full bool
}

// mostTimes is the number of repetitions of a finding at a line after which its block may stop.
const mostTimes = 1 << 10

// again counts a finding of a line that has made it before. The block need not go on when
// there are too many.
func (s *findings) again(line int, check Check) (known, enough bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.all {
		if have.Line == line && have.Check == check {
			have.Times++
			return true, have.Times > mostTimes
		}
	}
	return false, false
}

func (s *findings) add(f *Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == mostFindings {
		s.full = true
		return
	}
	f.Times = 1
	s.all = append(s.all, f)
}

// ended says whether there are so many that the launch need not go on.
func (s *findings) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

func (s *findings) err() error {
	errs := make([]error, len(s.all))
	for i, f := range s.all {
		errs[i] = f
	}
	return errors.Join(errs...)
}
