package clustertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"

	"github.com/dynctl/dynctl/internal/dynamod"
	"github.com/dynctl/dynctl/internal/failpoint"
)

// mainVariable makes the test binary behave as dynamod.
const mainVariable = "CLUSTERTEST_DYNAMOD"

// Main runs dynamod instead of the tests when this process was started for that.
// Call it first in TestMain.
func Main() {
	if os.Getenv(mainVariable) == "" {
		return
	}
	go takeOrders() // ends with the process
	os.Exit(dynamod.Main(os.Args[1:], os.Stdout, os.Stderr))
}

// order is what a test asks of the process of a node, one JSON value to its standard
// input; the answer is one JSON value from its descriptor 3.
type order struct {
	Die string // at this failpoint; empty: report
	Hit int    // how many hits from now
}

type reply struct {
	Error     string
	Footprint Footprint
}

// Footprint is what a process uses.
type Footprint struct {
	Goroutines int
	Heap       uint64 // bytes that are reachable
	Files      int    // open descriptors; -1 where the system does not list them
	Stacks     string // of the goroutines, equal ones together
}

// takeOrders serves the test that started this process, and does not outlive it.
func takeOrders() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.NewFile(3, "replies"))
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			die() // the test has ended without stopping this process
		}
		var r reply
		if o.Die == "" {
			r.Footprint = footprint()
		} else if _, err := failpoint.Arm(o.Die, o.Hit, die); err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			die()
		}
	}
}

// die kills this process as kill -9 does: nothing is said to anybody, and the caller
// takes no further step.
func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

func footprint() Footprint {
	debug.FreeOSMemory() // collects
	runtime.GC()         // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f := Footprint{Goroutines: runtime.NumGoroutine(), Heap: m.HeapAlloc, Files: -1}
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err == nil {
		f.Stacks = stacks.String()
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.Files = len(files)
	}
	return f
}

func (p *process) ask(o order) (r reply, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.NewEncoder(p.orders).Encode(o); err != nil {
		return r, err
	}
	line, err := p.replies.ReadBytes('\n')
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, err
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// DieAt has the process of a node kill itself at the n-th hit of a failpoint from now on.
func (n *RunningNode) DieAt(point string, hit int) error {
	_, err := n.process.ask(order{Die: point, Hit: hit})
	if err == nil {
		n.process.doomed = true
		return nil
	}
	return fmt.Errorf("%s: %w", n.Name, err)
}

// Footprint collects garbage in the process of a node and says what it uses then.
func (n *RunningNode) Footprint() (Footprint, error) {
	r, err := n.process.ask(order{})
	if err != nil {
		err = fmt.Errorf("footprint of %s: %w", n.Name, err)
	}
	return r.Footprint, err
}
