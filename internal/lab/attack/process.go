package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// program is a process that the laboratory starts, kills and starts again.
type program struct {
	name  string
	start func() *exec.Cmd

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	down  bool          // it was told to end
}

func (p *program) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := p.start()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	p.cmd, p.ended, p.down = cmd, ended, false
	return nil
}

func (p *program) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// lost reports whether the process ended although nobody told it to.
func (p *program) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return !p.down
	default:
		return false
	}
}

// end sends a signal and waits for the end of the process, which is killed when that
// takes too long.
func (p *program) end(sig os.Signal) {
	p.mu.Lock()
	p.down = true
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	_ = cmd.Process.Signal(sig)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-ended
	}
}
