package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/openai"
)

const action = "cannot chat"

// Options talks with the served model.
type Options struct {
	Session *session.Session
	Words   []string

	URL, Model  string
	System      string
	Files       []string
	Images      []string
	MaxTokens   int
	Temperature float64
	Seed        int64
	Timeout     time.Duration

	attached string   // the files, as they stand in the first message
	pictures []string // URLs of the images of the first message
	warm     *float64
	draw     *int64
}

// Command makes dynctl chat.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "chat [message...]", Short: "Talk with the model that the cluster serves", Group: command.GroupRun,
		Long: `With a message, or with one on standard input, one answer is printed as it comes, and
nothing else goes to standard output. On a terminal without a message a conversation begins:
/reset forgets it, /system changes the instruction, ctrl-c stops an answer, ctrl-d leaves.
Below each answer are its time to first token (TTFT), its speed, its number of tokens, and
the workers that computed it.

A frontend that is busy is asked again for as long as --timeout allows. If it wants an API
key, DYNAMOD_FRONTEND_API_KEY holds it.`,
		Examples: []string{
			"dynctl chat",
			`dynctl chat --image door.jpg "What is written on the door?"`,
			"git diff | dynctl chat -f - --system @review.txt 'What may break?' -o json",
		},
		Args:     cobra.ArbitraryArgs,
		Complete: complete.Nothing,
		See:      []string{"dynctl up", "dynctl top", "dynctl doctor"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Words = s, args
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.Model, "model", "", "name of the model (default: the only one that is served)")
	fs.StringVar(&o.System, "system", "", "instruction before the conversation, or @FILE that holds it")
	fs.StringArrayVarP(&o.Files, "file", "f", nil, "put a text file into the first message; - is standard input")
	fs.StringArrayVar(&o.Images, "image", nil, "put an image into the first message: a file, or an https URL")
	command.Count(fs, &o.MaxTokens, "max-tokens", 0, "most tokens of an answer (default: what the context has room for)")
	fs.Float64Var(&o.Temperature, "temperature", 0, "0 takes the most likely token, up to 2 (default: the model's)")
	fs.Int64Var(&o.Seed, "seed", 0, "draw the same answer again (default: random)")
	fs.StringVar(&o.URL, "url", "", "a frontend at this address (default: that of the cluster)")
	command.Duration(fs, &o.Timeout, "timeout", 2*time.Minute, "how long to wait for an answer to begin, or to go on")
	command.Grouped(fs, "Message", "system", "file", "image")
	command.Grouped(fs, "Answer", "model", "max-tokens", "temperature", "seed")
	command.Grouped(fs, "Frontend", "url", "timeout")
	_ = cmd.RegisterFlagCompletionFunc("model", complete.Models(a)) // fails for unknown flags only
	return cmd
}

// Run asks once, or begins a conversation.
func (o *Options) Run(ctx context.Context) error {
	args := o.Words
	if err := o.check(); err != nil {
		return err
	}
	message := strings.TrimSpace(strings.Join(args, " "))
	talk := len(args) == 0 && o.Session.Out.Streams.InTTY && o.Session.Out.Streams.OutTTY
	stdin := len(args) == 0 && !talk
	if err := o.read(stdin || talk); err != nil {
		return err
	}
	if stdin {
		text, err := readText(o.Session.Out.Streams.In, "standard input")
		if err != nil {
			return &exit.Failure{Action: action, Err: err}
		}
		message = strings.TrimSpace(text)
	}
	switch {
	case talk && !o.Session.Out.Prose():
		return &exit.UsageError{Text: "-o " + o.Session.Out.Format + " and -q need a message: a conversation is for people"}
	case !talk && message == "" && o.attached == "" && len(o.pictures) == 0:
		return &exit.UsageError{Text: "the message is empty", Tries: []string{`dynctl chat "What is a lease?"`}}
	}
	c, err := frontend.Find(ctx, o.Session, frontend.Place{Address: o.URL}, action)
	if err != nil {
		return err
	}
	m, err := frontend.Model(ctx, o.Session, c, action, o.Model, o.Timeout)
	if err != nil {
		return err
	}
	t := &turns{o: o, session: o.Session, c: c, model: m.ID, system: o.System}
	if talk {
		return t.converse(ctx)
	}
	return t.once(ctx, message)
}

// check finds mistakes before anything is dialed.
func (o *Options) check() error {
	given := o.Session.Given
	switch {
	case given("max-tokens") && o.MaxTokens == 0:
		return &exit.UsageError{Text: "--max-tokens: at least one"}
	case given("temperature") && !(o.Temperature >= 0 && o.Temperature <= 2):
		return &exit.UsageError{Text: fmt.Sprintf("--temperature: %v is not between 0 and 2", o.Temperature)}
	case o.Timeout <= 0:
		return &exit.UsageError{Text: "--timeout: must be greater than 0"}
	case given("model") && o.Model == "":
		return &exit.UsageError{Text: "--model: no name given"}
	case given("url") && o.URL == "":
		return &exit.UsageError{Text: "--url: no address given"}
	}
	if given("temperature") {
		o.warm = &o.Temperature
	}
	if given("seed") {
		o.draw = &o.Seed
	}
	return nil
}

// read loads the files that the command line names. When standard input is the
// message, it is not a file.
func (o *Options) read(taken bool) error {
	if name, ok := strings.CutPrefix(o.System, "@"); ok {
		text, err := o.file(name)
		if err != nil {
			return &exit.Failure{Action: action, Err: fmt.Errorf("--system: %w", err)}
		}
		o.System = strings.TrimSpace(text)
	}
	var b strings.Builder
	for i, name := range o.Files {
		label := filepath.Base(name)
		var text string
		var err error
		switch {
		case name != "-":
			text, err = o.file(name)
		case taken:
			return &exit.UsageError{Text: "--file -: standard input is the message already; give the message as an argument"}
		default:
			label = "standard input"
			text, err = readText(o.Session.Out.Streams.In, label)
			taken = true
		}
		if err != nil {
			return &exit.Failure{Action: action, Err: fmt.Errorf("--file: %w", err)}
		}
		if i > 0 {
			b.WriteString("\n")
		}
		fence := fenceFor(text)
		fmt.Fprintf(&b, "%s:\n%s\n%s\n%s\n", label, fence, strings.TrimRight(text, "\n"), fence)
	}
	o.attached = b.String()
	for _, name := range o.Images {
		u, err := frontend.Picture(o.Session, name)
		if err != nil {
			return &exit.Failure{Action: action, Err: fmt.Errorf("--image: %w", err)}
		}
		o.pictures = append(o.pictures, u)
	}
	return nil
}

// fenceFor returns a line that parts a text from what stands around it: more back
// quotes than the text has in a row.
func fenceFor(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}

// MaxText limits the text that a message takes from a file or standard input, in bytes.
const MaxText = 1 << 20

func (o *Options) file(name string) (string, error) {
	if name == "" {
		return "", errors.New("no file given")
	}
	f, err := os.Open(o.Session.Env.Path(name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readText(f, name)
}

// readText reads a text to its end. What is no text, or too long for any model, is
// refused.
func readText(r io.Reader, name string) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", name, err)
	case len(b) > MaxText:
		return "", fmt.Errorf("%s is longer than %d bytes", name, MaxText)
	case !utf8.Valid(b) || strings.ContainsRune(string(b), 0):
		return "", fmt.Errorf("%s is not text in UTF-8", name)
	}
	return string(b), nil
}

// Result is one answer as -o json prints it.
type Result struct {
	Model     string        `json:"model"`
	Answer    string        `json:"answer"`
	Reasoning string        `json:"reasoning,omitempty"`
	Finish    string        `json:"finish_reason"`
	Usage     *openai.Usage `json:"usage"`
	TTFTMS    *float64      `json:"ttft_ms"`
	TotalMS   float64       `json:"total_ms"`
	TokensS   *float64      `json:"tokens_per_s"`
	RequestID string        `json:"request_id,omitempty"`
	URL       string        `json:"url"`
	// Where the answer came from; null when the frontend does not tell.
	Workers *openai.Workers   `json:"workers"`
	Timing  *openai.RanTiming `json:"timing"`
}

func newChatResult(c *openai.Client, a openai.Answer) Result {
	r := Result{
		Model: a.Model, Answer: a.Text, Reasoning: a.Reasoning, Finish: a.Finish, Usage: a.Usage,
		TotalMS: human.Milliseconds(a.Took), TokensS: a.TokensPerSecond(), RequestID: a.RequestID, URL: c.URL(),
	}
	if a.TTFT > 0 {
		ms := human.Milliseconds(a.TTFT)
		r.TTFTMS = &ms
	}
	if a.Ran != nil {
		r.Workers, r.Timing = a.Ran.Workers, a.Ran.Timing
	}
	return r
}
