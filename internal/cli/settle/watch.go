package settle

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
)

// Watching shows the progress of an operation until it is done, the user presses ctrl-c, or the
// timeout passes. The operation itself continues in each case.
type Watching struct {
	Out      *output.Printer
	Progress string // how progress is shown
	Timeout  time.Duration
	Stopped  exit.Stopped         // after ctrl-c
	Late     func() *exit.Failure // when the time is over
}

// Until shows the frames of views until one says that all is done, or has an error. A frame
// without an operation is not shown.
func (o Watching) Until(ctx context.Context, w *client.Watch, frame func(client.View) (s progress.Screen, done bool, err error)) error {
	show := o.Out.Progress(o.Progress)
	defer show.Close()
	waiting, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	err := w.Until(waiting, LookEvery, func(v client.View) (bool, error) {
		s, done, err := frame(v)
		if done {
			s.Footer = ""
		}
		if s.Operation != "" {
			show.Show(s)
		}
		return done, err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		stopped := o.Stopped
		stopped.Err = err
		return &stopped
	case waiting.Err() != nil:
		f := o.Late()
		f.Code = exit.Deadline
		return f
	}
	return err
}

// Footer stands below what goes on without its watcher.
const Footer = "ctrl-c stops watching only."
