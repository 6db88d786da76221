package chat

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
)

const (
	chatPrompt = "> "
	chatMore   = "| " // within a message of several lines
	// chatQuotes stand before and after a message of several lines.
	chatQuotes = `"""`
)

const chatHelp = `/reset          forget the conversation
/system [text]  print the instruction of the model, or replace it
/exit           leave, as ctrl-d does
""" begins and ends a message of several lines; ctrl-c stops an answer
`

// errStopped is the cause of an answer that was stopped by ctrl-c.
var errStopped = errors.New("stopped")

// errLeave ends a conversation.
var errLeave = errors.New("left")

// converse talks until the user leaves. ctrl-c ends the context of the program, but not
// the conversation: only what else ends the context does.
func (t *turns) converse(ctx context.Context) error {
	interrupts, stop := t.session.Env.Signals()
	defer stop()
	k := &keyboard{
		in: bufio.NewReader(t.session.Out.Streams.In), wanted: make(chan struct{}), typed: make(chan typedLine, 1),
		ended: make(chan struct{}), idle: make(chan struct{}), ctrlC: make(chan struct{}, 1),
	}
	live, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(k.ended)
	wg.Go(func() {
		over := ctx.Done()
		for {
			select {
			case <-interrupts:
				select {
				case k.ctrlC <- struct{}{}:
				default:
				}
			case <-over:
				if over = nil; !errors.Is(context.Cause(ctx), session.ErrInterrupt) {
					cancel(context.Cause(ctx))
				}
			case <-k.ended:
				return
			}
		}
	})
	k.start(&wg)

	t.hint("%s at %s   /help, ctrl-d leaves", t.model, t.c.URL())
	for {
		message, err := t.message(live, k)
		if err == nil {
			err = t.turn(live, k, message)
		}
		switch {
		case errors.Is(err, errLeave):
			return nil
		case live.Err() != nil:
			return &exit.Stopped{Err: context.Cause(live)}
		case err != nil:
			return err
		}
	}
}

// hint prints a line beside the conversation.
func (t *turns) hint(format string, args ...any) {
	t.session.Out.Say(t.session.Out.Palette().Dim(term.Clean(fmt.Sprintf(format, args...))))
}

// message reads the next message, carrying out commands until there is one.
func (t *turns) message(ctx context.Context, k *keyboard) (string, error) {
	warned := false
	prompt := chatPrompt
	var quoted []string // of a message of several lines; nil outside of one
	for {
		_, _ = io.WriteString(t.session.Out.Streams.Out, t.session.Out.Palette().Bold(prompt)) // who does not see it types nothing
		line, err := k.line(ctx)
		switch {
		case errors.Is(err, errStopped) && warned:
			t.session.Out.Say("")
			return "", &exit.Stopped{}
		case errors.Is(err, errStopped):
			t.session.Out.Say("")
			t.hint("ctrl-c again leaves, and so does ctrl-d")
			warned, quoted, prompt = true, nil, chatPrompt
			continue
		case errors.Is(err, io.EOF):
			t.session.Out.Say("")
			return "", errLeave
		case err != nil:
			return "", err
		}
		warned = false
		trimmed := strings.TrimSpace(line)
		switch {
		case quoted != nil && strings.HasSuffix(trimmed, chatQuotes):
			last := strings.TrimSuffix(strings.TrimRight(line, " \t"), chatQuotes)
			return strings.TrimSpace(strings.Join(append(quoted, last), "\n")), nil
		case quoted != nil:
			quoted = append(quoted, line)
		case len(trimmed) >= 2*len(chatQuotes) && strings.HasPrefix(trimmed, chatQuotes) && strings.HasSuffix(trimmed, chatQuotes):
			return strings.TrimSpace(strings.Trim(trimmed, `"`)), nil
		case strings.HasPrefix(trimmed, chatQuotes):
			quoted, prompt = []string{strings.TrimPrefix(trimmed, chatQuotes)}, chatMore
		case strings.HasPrefix(line, "/"):
			if err := t.command(trimmed); err != nil {
				return "", err
			}
		case trimmed != "":
			return trimmed, nil
		}
	}
}

// command carries out a line that begins with a slash.
func (t *turns) command(line string) error {
	name, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/exit", "/quit", "/bye":
		return errLeave
	case "/help", "/?":
		t.session.Out.Say(strings.TrimSuffix(chatHelp, "\n"))
	case "/reset":
		t.messages = nil
		t.hint("the conversation is forgotten")
	case "/system":
		switch {
		case rest != "":
			t.system = rest
			t.hint("the instruction is replaced")
		case t.system == "":
			t.hint("there is no instruction")
		default:
			t.session.Out.Say(tame(t.system))
		}
	default:
		t.hint("no command %s; /help lists them. A message that begins with a slash needs a blank before it", name)
	}
	return nil
}

// turn asks and prints the answer. Its error ends the conversation: what goes wrong
// with one answer does not.
func (t *turns) turn(live context.Context, k *keyboard, message string) error {
	if message == "" {
		return nil
	}
	ctx, cancel := context.WithCancelCause(live)
	defer cancel(nil)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-k.ctrlC:
			cancel(errStopped)
		case <-done:
		}
	})
	p := &printer{w: t.session.Out.Streams.Data(), terminal: true, palette: t.session.Out.Palette()}
	a, err := t.ask(ctx, message, p.delta)
	close(done)
	wg.Wait()
	p.end()
	switch {
	case p.err != nil:
		return p.err
	case live.Err() != nil:
		return context.Cause(live)
	case errors.Is(err, errStopped):
		t.hint("stopped")
	case err != nil:
		t.session.Out.Report(frontend.Failure(t.session, "no answer", t.c, err))
	default:
		t.figures(a)
	}
	return nil
}

// keyboard reads lines, one when it is wanted, so that nothing is read while
// nobody asks.
type keyboard struct {
	in     *bufio.Reader
	wanted chan struct{}
	typed  chan typedLine // capacity 1
	ctrlC  chan struct{}  // capacity 1
	ended  chan struct{}  // closed with the conversation
	idle   chan struct{}  // closed when nobody reads any more

	reading bool // a line is wanted and has not come
}

type typedLine struct {
	text string
	err  error
}

// start starts the reader. When the conversation ends while it reads, which only a
// signal can do, it is left behind with the terminal: a read cannot be taken back.
func (k *keyboard) start(wg *sync.WaitGroup) {
	go func() {
		defer close(k.idle)
		for {
			select {
			case <-k.wanted:
			case <-k.ended:
				return
			}
			text, err := k.in.ReadString('\n')
			k.typed <- typedLine{text, err}
			if err != nil {
				return
			}
		}
	}()
	wg.Go(func() {
		<-k.ended
		if !k.reading {
			<-k.idle
		}
	})
}

// line returns the next line without its end, io.EOF after the last, or errStopped
// for a ctrl-c.
func (k *keyboard) line(ctx context.Context) (string, error) {
	if !k.reading {
		select {
		case k.wanted <- struct{}{}:
			k.reading = true
		case <-k.idle: // the last line had no end
			return "", io.EOF
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	select {
	case l := <-k.typed:
		k.reading = false
		if l.err != nil && (!errors.Is(l.err, io.EOF) || l.text == "") {
			return "", l.err
		}
		return strings.TrimRight(l.text, "\r\n"), nil
	case <-k.ctrlC:
		return "", errStopped
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
