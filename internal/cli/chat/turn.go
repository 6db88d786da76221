package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/openai"
)

// turns is a conversation.
type turns struct {
	o       *Options
	session *session.Session
	c       *openai.Client
	model   string
	system  string

	messages []openai.Message // without the system's
	// foreign is set when the frontend refuses to tell where answers run: it is not one
	// of ours.
	foreign bool
}

// once asks one question and prints the answer.
func (t *turns) once(ctx context.Context, message string) error {
	s := t.session
	p := &printer{w: s.Out.Streams.Data(), terminal: s.Out.Streams.OutTTY, palette: s.Out.Palette()}
	streamed := s.Out.Prose() || s.Out.Quiet || s.Out.Format == "name"
	each := p.delta
	if !streamed {
		each = func(openai.Delta) error { return nil }
	}
	a, err := t.ask(ctx, message, each)
	if streamed {
		p.end()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && streamed:
		t.figures(a)
		return p.err
	case err == nil:
		return s.Out.Answer(output.Answer{Data: newChatResult(t.c, a)})
	case p.err != nil:
		return p.err
	}
	return frontend.Failure(s, action, t.c, err)
}

// ask sends the conversation with one more message. The conversation grows if there
// is an answer, even one that was stopped.
func (t *turns) ask(ctx context.Context, message string, each func(openai.Delta) error) (openai.Answer, error) {
	if len(t.messages) == 0 && t.o.attached != "" {
		message = strings.TrimSpace(t.o.attached + "\n" + message)
	}
	history := append(t.messages[:len(t.messages):len(t.messages)], openai.Message{Role: "user", Content: message})
	q := openai.Request{Model: t.model, MaxTokens: t.o.MaxTokens, Temperature: t.o.warm, Seed: t.o.draw, Images: t.o.pictures}
	if t.system != "" {
		q.Messages = append(q.Messages, openai.Message{Role: "system", Content: t.system})
	}
	q.Messages = append(q.Messages, history...)
	a, err := t.persist(ctx, q, each)
	if err == nil || a.Text != "" {
		t.messages = append(history, openai.Message{Role: "assistant", Content: a.Text})
	}
	return a, err
}

// retryDefault is when a busy frontend that does not say is asked again.
const retryDefault = time.Second

// persist asks again while the frontend is busy, for as long as an answer may take to
// begin.
func (t *turns) persist(ctx context.Context, q openai.Request, each func(openai.Delta) error) (openai.Answer, error) {
	end := time.Now().Add(t.o.Timeout)
	for told := false; ; told = true {
		a, err := t.try(ctx, q, time.Until(end), each)
		var busy *openai.Error
		if !errors.As(err, &busy) || !busy.Temporary() || ctx.Err() != nil {
			return a, err
		}
		wait := busy.RetryAfter
		if wait <= 0 {
			wait = retryDefault
		}
		if time.Until(end) < wait {
			return a, err
		}
		if !told {
			t.session.Out.Note("%s; asking again in %s, for at most %s", busy.Error(), human.Age(wait), command.DurationText(t.o.Timeout))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return a, context.Cause(ctx)
		}
	}
}

// try asks once. An answer has to begin within wait, and then to go on within the
// timeout.
func (t *turns) try(ctx context.Context, q openai.Request, wait time.Duration, each func(openai.Delta) error) (openai.Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(wait, func() {
		cancel(fmt.Errorf("%w: %s passed", frontend.ErrSilent, command.DurationText(t.o.Timeout)))
	})
	defer silence.Stop()
	begun := false
	alive := func(d openai.Delta) error {
		if begun = begun || d != (openai.Delta{}); begun {
			silence.Reset(t.o.Timeout)
		}
		return each(d)
	}
	if !t.foreign {
		q.NVExt = &openai.Extension{ExtraFields: openai.TellAll()}
	}
	a, err := t.c.Chat(ctx, q, alive)
	if q.NVExt != nil && refusesExtension(err) {
		t.foreign, q.NVExt = true, nil
		return t.c.Chat(ctx, q, alive)
	}
	return a, err
}

// refusesExtension reports whether a frontend does not know the field nvext.
func refusesExtension(err error) bool {
	var said *openai.Error
	return errors.As(err, &said) && (said.Status == http.StatusBadRequest || said.Status == http.StatusUnprocessableEntity) &&
		(strings.HasPrefix(said.Param, "nvext") || strings.Contains(said.Message, "nvext"))
}

// figures prints how an answer came about, for people.
func (t *turns) figures(a openai.Answer) {
	s := t.session
	if !s.Out.Streams.ErrTTY || s.Out.Quiet {
		return
	}
	p := term.Palette{On: term.Colored(s.Config.Color, s.Out.Streams.ErrTTY, s.Env.Variables())}
	_, _ = io.WriteString(s.Out.Streams.Err, p.Dim(term.Clean(figuresText(a)))+"\n") // nobody is left to tell
}

// figuresText is like "ttft 312 ms · 24.1 tokens/s · 18 prompt + 120 answer tokens ·
// worker-3, prefilled by worker-1".
func figuresText(a openai.Answer) string {
	var parts []string
	if a.TTFT > 0 {
		parts = append(parts, "ttft "+human.Millis(a.TTFT))
	} else {
		parts = append(parts, "no text")
	}
	if v := a.TokensPerSecond(); v != nil {
		parts = append(parts, fmt.Sprintf("%.1f tokens/s", *v))
	}
	if u := a.Usage; u != nil {
		cached := ""
		if u.Cached != nil && *u.Cached > 0 {
			cached = fmt.Sprintf(" (%s cached)", human.Commas(*u.Cached))
		}
		parts = append(parts, fmt.Sprintf("%s prompt%s + %s answer tokens", human.Commas(u.Prompt), cached, human.Commas(u.Completion)))
	}
	if where := ranText(a.Ran); where != "" {
		parts = append(parts, where)
	}
	switch a.Finish {
	case "stop", "":
	case "length":
		parts = append(parts, "cut off at its length limit")
	default:
		parts = append(parts, "ended by "+a.Finish)
	}
	return strings.Join(parts, " · ")
}

// ranText says where an answer came from, if that is told.
func ranText(r *openai.Ran) string {
	if r == nil || r.Workers == nil || r.Workers.Decode == "" {
		return ""
	}
	text := r.Workers.Decode
	switch {
	case r.Workers.Prefill != "" && r.Timing != nil:
		text += fmt.Sprintf(", prefilled by %s (%s)", r.Workers.Prefill, human.OrDash(r.Timing.PrefillWay))
	case r.Workers.Prefill != "":
		text += ", prefilled by " + r.Workers.Prefill
	case r.Timing != nil && r.Timing.PrefillWhy != "":
		text += fmt.Sprintf(", prefilled there (%s)", r.Timing.PrefillWhy)
	}
	if r.Timing != nil && r.Timing.Moves > 0 {
		text += ", moved " + human.Plural(r.Timing.Moves, "time")
	}
	return text
}

// printer prints an answer as it comes: reasoning only on a terminal, where
// nothing of a model may control it.
type printer struct {
	w         io.Writer
	terminal  bool
	palette   term.Palette
	reasoning bool // the last piece was reasoning
	open      bool // the last line has no end yet
	err       error
}

func (p *printer) delta(d openai.Delta) error {
	if d.Reasoning != "" && p.terminal {
		if !p.reasoning {
			p.end()
			p.write(p.palette.Dim("reasoning:") + "\n")
			p.reasoning = true
		}
		p.piece(d.Reasoning, p.palette.Dim)
	}
	if d.Text != "" {
		if p.reasoning {
			p.end()
			p.write("\n")
			p.reasoning = false
		}
		p.piece(d.Text, func(s string) string { return s })
	}
	return p.err
}

// piece writes a part of a text, which may end in the middle of a line.
func (p *printer) piece(text string, paint func(string) string) {
	p.open = !strings.HasSuffix(text, "\n")
	if p.terminal {
		text = paint(tame(text))
	}
	p.write(text)
}

// end ends the last line.
func (p *printer) end() {
	if p.open {
		p.write("\n")
	}
	p.open = false
}

func (p *printer) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, text)
	}
}

// tame keeps what a model writes from controlling the terminal; lines stay lines.
func tame(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, l := range lines {
		lines[i] = term.Printable(l)
	}
	return strings.Join(lines, "\n")
}
