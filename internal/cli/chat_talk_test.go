package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/openai"
)

func TestConversation(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Says("", "One."), clitest.Says("", "Two."), clitest.Refuses(400, "", "", "Bad."), clitest.Says("", "Three."), clitest.Says("", "Four."))
	input := strings.Join([]string{
		"first", "", " second ", "/nonsense", "this fails", "/system", "/system Be brief.", "/system", `"""`, "third", "  line", `"""`, "/reset", " /fourth", "/exit", "not read",
	}, "\n")
	r := runChat(t, f, options{tty: true, input: input}, "--color", "never")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	clitest.Has(t, "stdout", r.stdout,
		"tiny at "+f.URL+"   /help, ctrl-d leaves\n> One.\n> > Two.\n> no command /nonsense; /help lists them.",
		"> there is no instruction\n> the instruction is replaced\n> Be brief.\n> | | | Three.\n> the conversation is forgotten\n> Four.\n> ")
	clitest.Has(t, "stderr", r.stderr, "dynctl: no answer: Bad (status 400)\n", "7 answer tokens")
	user := func(s string) openai.Message { return openai.Message{Role: "user", Content: s} }
	model := func(s string) openai.Message { return openai.Message{Role: "assistant", Content: s} }
	system := openai.Message{Role: "system", Content: "Be brief."}
	before := []openai.Message{user("first"), model("One."), user("second"), model("Two.")}
	want := [][]openai.Message{
		before[:1], before[:3], append(slices.Clone(before), user("this fails")),
		append(append([]openai.Message{system}, before...), user("third\n  line")), {system, user("/fourth")},
	}
	for i, q := range f.Requests() {
		if !slices.Equal(q.Messages, want[i]) {
			t.Errorf("request %d: %q, want %q", i, q.Messages, want[i])
		}
	}
	if len(f.Requests()) != len(want) {
		t.Errorf("%d requests", len(f.Requests()))
	}
}

// ctrl-d ends a conversation, also after a line without an end.
func TestConversationEnds(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Says("", "One."))
	for _, input := range []string{"", "hi", "hi\n", `"""` + "\nhi"} {
		if r := runChat(t, f, options{tty: true, input: input}); r.code != 0 || !strings.HasSuffix(r.stdout, "\n") {
			t.Errorf("%q: %+v", input, r)
		}
	}
	if r := runChat(t, f, options{tty: true}, "-o", "json"); r.code != exit.Usage {
		t.Errorf("-o json: %+v", r)
	}
}

// terminal holds the input and the output of a test.
type terminal struct {
	t    *testing.T
	keys *io.PipeWriter
	mu   sync.Mutex
	out  bytes.Buffer
	seen int
}

func (s *terminal) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(b)
}

// expect waits until a text shows after the last one.
func (s *terminal) expect(text string) {
	s.t.Helper()
	clitest.Eventually(s.t, text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := strings.Index(s.out.String()[s.seen:], text)
		if i >= 0 {
			s.seen += i + len(text)
		}
		return i >= 0
	})
}

func (s *terminal) press(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.keys, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

// sit starts a conversation on a terminal.
func sit(ctx context.Context, t *testing.T, f *clitest.Frontend, interrupts <-chan os.Signal) (*terminal, <-chan int) {
	t.Helper()
	in, keys := io.Pipe()
	s := &terminal{t: t, keys: keys}
	code := make(chan int, 1)
	env := session.Env{
		Streams: term.Streams{In: in, Out: s, Err: s, InTTY: true, OutTTY: true, ErrTTY: true},
		Environ: []string{"HOME=/nowhere", "NO_COLOR=1"}, Dir: os.TempDir(), Interrupts: interrupts,
	}
	go func() { code <- Main(ctx, []string{"chat", "--url", f.URL}, env) }()
	t.Cleanup(func() { _ = keys.Close() })
	return s, code
}

// ctrl-c stops the answer; the conversation goes on with what there is of it.
func TestInterruptStopsTheAnswer(t *testing.T) {
	f := clitest.NewFrontend(t, clitest.Hangs("half of"), clitest.Says("", "Whole."))
	interrupts := make(chan os.Signal)
	ctx, end := context.WithCancelCause(t.Context())
	s, code := sit(ctx, t, f, interrupts)
	s.expect("> ")
	s.press("hi")
	s.expect("half of")
	end(session.ErrInterrupt) // as the first ctrl-c does to the program
	interrupts <- os.Interrupt
	s.expect("\nstopped\n> ")
	s.press("again")
	s.expect("Whole.\n")
	want := []openai.Message{{Role: "user", Content: "hi"}, {Role: "assistant", Content: "half of"}, {Role: "user", Content: "again"}}
	if got := f.Requests()[1].Messages; !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
	s.expect("> ")
	interrupts <- os.Interrupt
	s.expect("ctrl-c again leaves, and so does ctrl-d\n> ")
	s.press("still here")
	s.expect("Whole.\n")
	s.expect("> ")
	interrupts <- os.Interrupt
	s.expect("ctrl-c again leaves")
	interrupts <- os.Interrupt
	if c := <-code; c != exit.Interrupted {
		t.Errorf("exit %d", c)
	}
}

// SIGTERM ends the conversation, wherever it is.
func TestTerminationEndsTheConversation(t *testing.T) {
	for _, answering := range []bool{false, true} {
		f := clitest.NewFrontend(t, clitest.Hangs("half of"))
		ctx, end := context.WithCancelCause(t.Context())
		s, code := sit(ctx, t, f, make(chan os.Signal))
		s.expect("> ")
		if answering {
			s.press("hi")
			s.expect("half of")
		}
		end(session.ErrTerminated)
		if c := <-code; c != exit.Interrupted {
			t.Errorf("answering %t: exit %d", answering, c)
		}
	}
}
