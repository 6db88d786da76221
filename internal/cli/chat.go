package cli

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

	"github.com/dynctl/dynctl/internal/openai"
)

const chatAction = "cannot chat"

// chatCommand talks with the served model.
type chatCommand struct {
	url, model  string
	system      string
	files       []string
	maxTokens   int
	temperature float64
	seed        int64
	timeout     time.Duration

	attached string // the files, as they stand in the first message
	warm     *float64
	draw     *int64
}

func (f *factory) chat() *cobra.Command {
	o := &chatCommand{}
	cmd := f.command(verb{
		use: "chat [message...]", short: "Talk with the model that the cluster serves", group: groupRun,
		long: `With a message, or with one on standard input, one answer is printed as it comes, and
nothing else goes to standard output. On a terminal without a message a conversation
begins: /reset forgets it, /system changes the instruction, ctrl-c stops an answer,
ctrl-d leaves. Below each answer stands how long its first token took (TTFT), how fast
the others came, how many tokens there were, and which workers it came from.

A frontend that is busy is asked again for as long as --timeout allows. If it wants an
API key, DYNAMOD_FRONTEND_API_KEY holds it.`,
		examples: []string{
			"dynctl chat",
			`dynctl chat "What is a lease?" --max-tokens 200`,
			"git diff | dynctl chat -f - --system @review.txt 'What may break?' -o json",
		},
		args: cobra.ArbitraryArgs,
		complete: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		see: []string{"dynctl up", "dynctl top", "dynctl doctor"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.model, "model", "", "name of the model (default: the only one that is served)")
	fs.StringVar(&o.system, "system", "", "instruction before the conversation, or @FILE that holds it")
	fs.StringArrayVarP(&o.files, "file", "f", nil, "put a text file into the first message; - is standard input")
	countVar(fs, &o.maxTokens, "max-tokens", 0, "most tokens of an answer (default: what the context has room for)")
	fs.Float64Var(&o.temperature, "temperature", 0, "0 takes the most likely token, up to 2 (default: the model's)")
	fs.Int64Var(&o.seed, "seed", 0, "draw the same answer again (default: random)")
	fs.StringVar(&o.url, "url", "", "a frontend at this address (default: that of the cluster)")
	durationVar(fs, &o.timeout, "timeout", 2*time.Minute, "how long to wait for an answer to begin, or to go on")
	for _, name := range []string{"max-tokens", "temperature", "seed"} {
		fs.Lookup(name).DefValue = "" // the usage says what it is
	}
	grouped(fs, "Message", "system", "file")
	grouped(fs, "Answer", "model", "max-tokens", "temperature", "seed")
	grouped(fs, "Frontend", "url", "timeout")
	_ = cmd.RegisterFlagCompletionFunc("model", f.completeModels) // fails for unknown flags only
	return cmd
}

func (o *chatCommand) run(ctx context.Context, inv *invocation, args []string) error {
	if err := o.check(inv); err != nil {
		return err
	}
	message := strings.TrimSpace(strings.Join(args, " "))
	talk := len(args) == 0 && inv.env.Streams.InTTY && inv.env.Streams.OutTTY
	stdin := len(args) == 0 && !talk
	if err := o.read(inv, stdin || talk); err != nil {
		return err
	}
	if stdin {
		text, err := readText(inv.env.Streams.In, "standard input")
		if err != nil {
			return &failure{action: chatAction, err: err}
		}
		message = strings.TrimSpace(text)
	}
	switch {
	case talk && !inv.prose():
		return &usageError{text: "-o " + inv.format + " and -q need a message: a conversation is for people"}
	case !talk && message == "" && o.attached == "":
		return &usageError{text: "the message is empty", tries: []string{`dynctl chat "What is a lease?"`}}
	}
	c, err := inv.frontend(ctx, o.url, chatAction)
	if err != nil {
		return err
	}
	m, err := inv.servedModel(ctx, c, chatAction, o.model, o.timeout)
	if err != nil {
		return err
	}
	t := &chatTurns{o: o, inv: inv, c: c, model: m.ID, system: o.system}
	if talk {
		return t.converse(ctx)
	}
	return t.once(ctx, message)
}

// check finds mistakes before anything is dialed.
func (o *chatCommand) check(inv *invocation) error {
	given := inv.cmd.Flags().Changed
	switch {
	case given("max-tokens") && o.maxTokens == 0:
		return &usageError{text: "--max-tokens: at least one"}
	case given("temperature") && !(o.temperature >= 0 && o.temperature <= 2):
		return &usageError{text: fmt.Sprintf("--temperature: %v is not between 0 and 2", o.temperature)}
	case o.timeout <= 0:
		return &usageError{text: "--timeout: must be more than nothing"}
	case given("model") && o.model == "":
		return &usageError{text: "--model: no name given"}
	case given("url") && o.url == "":
		return &usageError{text: "--url: no address given"}
	}
	if given("temperature") {
		o.warm = &o.temperature
	}
	if given("seed") {
		o.draw = &o.seed
	}
	return nil
}

// read loads the files that the command line names. When standard input is the
// message, it is not a file.
func (o *chatCommand) read(inv *invocation, taken bool) error {
	if name, ok := strings.CutPrefix(o.system, "@"); ok {
		text, err := o.file(inv, name)
		if err != nil {
			return &failure{action: chatAction, err: fmt.Errorf("--system: %w", err)}
		}
		o.system = strings.TrimSpace(text)
	}
	var b strings.Builder
	for i, name := range o.files {
		label := filepath.Base(name)
		var text string
		var err error
		switch {
		case name != "-":
			text, err = o.file(inv, name)
		case taken:
			return &usageError{text: "--file -: standard input is the message already; give the message as an argument"}
		default:
			label = "standard input"
			text, err = readText(inv.env.Streams.In, label)
			taken = true
		}
		if err != nil {
			return &failure{action: chatAction, err: fmt.Errorf("--file: %w", err)}
		}
		if i > 0 {
			b.WriteString("\n")
		}
		fence := fenceFor(text)
		fmt.Fprintf(&b, "%s:\n%s\n%s\n%s\n", label, fence, strings.TrimRight(text, "\n"), fence)
	}
	o.attached = b.String()
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

// maxText is how much of a file or of standard input goes into a message, in bytes.
const maxText = 1 << 20

func (o *chatCommand) file(inv *invocation, name string) (string, error) {
	if name == "" {
		return "", errors.New("no file given")
	}
	f, err := os.Open(inv.path(name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readText(f, name)
}

// readText reads a text to its end. What is no text, or too long for any model, is
// refused.
func readText(r io.Reader, name string) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxText+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", name, err)
	case len(b) > maxText:
		return "", fmt.Errorf("%s is longer than %d bytes", name, maxText)
	case !utf8.Valid(b) || strings.ContainsRune(string(b), 0):
		return "", fmt.Errorf("%s is not text in UTF-8", name)
	}
	return string(b), nil
}

// chatResult is one answer as -o json prints it.
type chatResult struct {
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

func newChatResult(c *openai.Client, a openai.Answer) chatResult {
	r := chatResult{
		Model: a.Model, Answer: a.Text, Reasoning: a.Reasoning, Finish: a.Finish, Usage: a.Usage,
		TotalMS: milliseconds(a.Took), TokensS: a.TokensPerSecond(), RequestID: a.RequestID, URL: c.URL(),
	}
	if a.TTFT > 0 {
		ms := milliseconds(a.TTFT)
		r.TTFTMS = &ms
	}
	if a.Ran != nil {
		r.Workers, r.Timing = a.Ran.Workers, a.Ran.Timing
	}
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
