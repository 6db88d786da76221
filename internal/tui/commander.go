package tui

import (
	"context"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// snapshotMsg brings a new snapshot and the moment it came, by the screen's clock.
type snapshotMsg struct {
	snap cluster.Snapshot
	at   time.Time
}

// endedMsg says that the source closed: no more snapshots will come.
type endedMsg struct{}

// tickMsg moves the clock of the screen.
type tickMsg struct{ at time.Time }

// actedMsg is the outcome of an action.
type actedMsg struct {
	action client.Action
	err    error
}

// savedMsg is the outcome of saving the screen.
type savedMsg struct {
	name string
	err  error
}

// actTimeout limits how long the screen waits for an action to be accepted.
const actTimeout = 10 * time.Second

// commander runs the commands of one program. It ends and awaits them: Bubble
// Tea itself leaves running commands behind.
type commander struct {
	ctx  context.Context // ends every command
	stop <-chan struct{} // closed when the program is to leave; nil: never
	now  func() time.Time

	mu     sync.Mutex
	closed bool // no command starts after this; guarded by mu
	wg     sync.WaitGroup
}

// do makes a command of f, which must return soon after its context ends.
func (c *commander) do(f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil
		}
		c.wg.Add(1)
		c.mu.Unlock()
		defer c.wg.Done()
		return f(c.ctx)
	}
}

// wait returns when the last command has; the context must have ended.
func (c *commander) wait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}

// next waits for one snapshot. Update arms it again after each, so that a slow
// terminal skips snapshots and never holds up the source.
func (c *commander) next(ch <-chan cluster.Snapshot) tea.Cmd {
	return c.do(func(ctx context.Context) tea.Msg {
		select {
		case <-ctx.Done():
			return nil
		case s, ok := <-ch:
			if !ok {
				return endedMsg{}
			}
			return snapshotMsg{s, c.now()}
		}
	})
}

// leave ends the program, in its own orderly way, when Run's context ends.
func (c *commander) leave() tea.Cmd {
	return c.do(func(ctx context.Context) tea.Msg {
		select {
		case <-c.stop:
			return tea.QuitMsg{}
		case <-ctx.Done():
			return nil
		}
	})
}

// tick reports the time at the next multiple of every.
func (c *commander) tick(every time.Duration) tea.Cmd {
	return c.do(func(ctx context.Context) tea.Msg {
		now := c.now()
		t := time.NewTimer(max(now.Truncate(every).Add(every).Sub(now), time.Millisecond))
		defer t.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			return tickMsg{c.now()}
		}
	})
}

// act asks the source to carry out an action.
func (c *commander) act(s client.Source, a client.Action) tea.Cmd {
	return c.do(func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, actTimeout)
		defer cancel()
		return actedMsg{a, s.Act(ctx, a)}
	})
}

// setInterval tells the source interval between samples.
func (c *commander) setInterval(s client.Source, d time.Duration) tea.Cmd {
	return c.do(func(context.Context) tea.Msg {
		s.SetInterval(d)
		return nil
	})
}

// save keeps the screen in a file.
func (c *commander) save(f func(string, []byte) error, name string, text []byte) tea.Cmd {
	return c.do(func(context.Context) tea.Msg {
		return savedMsg{name, f(name, text)}
	})
}
