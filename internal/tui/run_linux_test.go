package tui

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// terminal is a pseudo-terminal: the program gets tty, the test plays the person
// at the other end.
type terminal struct {
	t        *testing.T
	far, tty *os.File
	before   unix.Termios
	done     chan struct{} // closed when reading ended

	mu  sync.Mutex
	out strings.Builder
}

func openTerminal(t *testing.T, w, h uint16) *terminal {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	fd := int(far.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: h, Col: w}); err != nil {
		t.Fatal(err)
	}
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, far: far, tty: tty, before: *state, done: make(chan struct{})}
	go term.read()
	t.Cleanup(term.close)
	return term
}

func (x *terminal) read() {
	defer close(x.done)
	buf := make([]byte, 4096)
	for {
		n, err := x.far.Read(buf)
		x.mu.Lock()
		x.out.Write(buf[:n])
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (x *terminal) close() {
	x.tty.Close() // the far end then reads an error
	<-x.done
	x.far.Close()
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

func (x *terminal) wait(want string) {
	x.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(x.text(), want) {
			return
		}
	}
	x.t.Fatalf("the terminal never shows %q; it shows %q", want, x.text())
}

func (x *terminal) typeKeys(s string) {
	x.t.Helper()
	if _, err := x.far.WriteString(s); err != nil {
		x.t.Fatal(err)
	}
}

// restored fails if the terminal is not as it was before.
func (x *terminal) restored() {
	x.t.Helper()
	after, err := unix.IoctlGetTermios(int(x.tty.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	if *after != x.before {
		x.t.Errorf("terminal modes %+v, want %+v", *after, x.before)
	}
	for _, want := range []string{"\x1b[?1049l", "\x1b[?25h"} { // main screen, cursor
		x.wait(want)
	}
}

func TestRun(t *testing.T) {
	errStop := errors.New("stopped by the test")
	tests := []struct {
		name string
		use  func(x *terminal, src *fakeSource, cancel context.CancelCauseFunc)
		want error
	}{
		{"q leaves", func(x *terminal, _ *fakeSource, _ context.CancelCauseFunc) { x.typeKeys("q") }, nil},
		{"ctrl-c leaves", func(x *terminal, _ *fakeSource, _ context.CancelCauseFunc) { x.typeKeys("\x03") }, nil},
		{"the context ends it", func(_ *terminal, _ *fakeSource, cancel context.CancelCauseFunc) { cancel(errStop) }, errStop},
		{"drain with the mouse on", func(x *terminal, _ *fakeSource, _ context.CancelCauseFunc) {
			x.typeKeys("M")
			x.wait("mouse on")
			x.typeKeys("jd")
			x.wait("Drain worker-2?")
			x.typeKeys("\t")
			x.wait("[ Drain worker-2 ]")
			x.typeKeys("\r")
			x.wait("accepted")
			x.typeKeys("q")
		}, nil},
		{"a log is open", func(x *terminal, src *fakeSource, _ context.CancelCauseFunc) {
			src.streams = []func(context.Context, func([]byte) error) error{stream(nil, "first line\n")}
			x.typeKeys("L")
			x.wait("first line")
			x.typeKeys("\x03")
		}, nil},
		{"the source ends", func(x *terminal, src *fakeSource, _ context.CancelCauseFunc) {
			src.Close()
			x.wait("ENDED")
			x.typeKeys("q")
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			x := openTerminal(t, 100, 30)
			src := newFakeSource()
			src.ch <- labSnapshot()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() {
				ended <- Run(ctx, src, Options{In: x.tty, Out: x.tty, Now: noon, Theme: draw.ThemeDark})
			}()
			x.wait("worker-7")
			tt.use(x, src, cancel)
			select {
			case err := <-ended:
				if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("Run returned %v, want %v", err, tt.want)
				}
			case <-time.After(time.Minute):
				t.Fatal("Run does not return")
			}
			x.restored()
			if strings.HasPrefix(tt.name, "drain") {
				if got := src.actions(); !reflect.DeepEqual(got, []client.Action{{Kind: client.ActDrain, Worker: "worker-2"}}) {
					t.Errorf("actions %v", got)
				}
				x.wait("\x1b[?1002l") // mouse off again
			}
			x.close()
			goleak.VerifyNone(t, ignore)
		})
	}
}

// An input the program cannot wait on fails after the screen was taken over.
func TestRunRestoresTheScreenWhenItCannotStart(t *testing.T) {
	x := openTerminal(t, 100, 30)
	file, err := os.Create(t.TempDir() + "/input")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Run(t.Context(), newFakeSource(), Options{In: file, Out: x.tty, Now: noon}); err == nil {
		t.Skip("this system waits on files")
	}
	x.restored()
}
