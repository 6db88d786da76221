package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// errDeclined is returned when somebody answered no.
var errDeclined = errors.New("not confirmed, nothing was changed")

// interactive reports whether there is somebody to ask.
func (inv *invocation) interactive() bool { return inv.env.Streams.Interactive(inv.variables()) }

// confirm asks a question that names what is at stake. Without somebody to ask it
// fails; --yes answers beforehand.
func (inv *invocation) confirm(yes bool, action, question string) error {
	return inv.agree(yes, action, question, "[y/N]", "y", "yes")
}

// confirmNamed is confirm for what takes more than one thing away: the name of the whole
// must be typed.
func (inv *invocation) confirmNamed(yes bool, action, question, name string) error {
	return inv.agree(yes, action, question, "Type "+name+" to go on:", name)
}

// agree asks for one of these answers, in any case of letters.
func (inv *invocation) agree(yes bool, action, question, hint string, answers ...string) error {
	if yes {
		return nil
	}
	if !inv.interactive() {
		return &failure{action: action, err: errors.New("needs --yes when not interactive"), facts: []string{question}, code: exitUsage}
	}
	_, _ = fmt.Fprintf(inv.env.Streams.Err, "%s %s ", question, hint) // the answer is what counts
	line, err := readLine(inv.env.Streams.In)
	if err != nil && !errors.Is(err, io.EOF) {
		return &failure{action: action, err: fmt.Errorf("read the answer: %w", err)}
	}
	for _, a := range answers {
		if strings.EqualFold(strings.TrimSpace(line), a) {
			return nil
		}
	}
	return &failure{action: action, err: errDeclined}
}

// readLine reads one line and no byte more.
func readLine(r io.Reader) (string, error) {
	var b strings.Builder
	one := bufio.NewReaderSize(oneByte{r}, 16)
	for {
		c, err := one.ReadByte()
		if err != nil || c == '\n' {
			return b.String(), err
		}
		b.WriteByte(c)
	}
}

// oneByte reads single bytes, so that nothing is buffered away from later readers.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1)]) }
