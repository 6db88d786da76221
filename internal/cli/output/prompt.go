package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
)

// errDeclined is returned when the user answered no.
var errDeclined = errors.New("not confirmed, nothing was changed")

// Interactive reports whether a user can be asked.
func (p *Printer) Interactive() bool { return p.Streams.Interactive(p.Environ) }

// Confirm asks a question that names what is at stake. Without a terminal it
// fails; yes answers beforehand.
func (p *Printer) Confirm(yes bool, action, question string) error {
	return agree(p, yes, action, question, "[y/N]", "y", "yes")
}

// ConfirmNamed is Confirm for what takes more than one thing away: the name of the whole
// must be typed.
func (p *Printer) ConfirmNamed(yes bool, action, question, name string) error {
	return agree(p, yes, action, question, "Type "+name+" to go on:", name)
}

// agree asks for one of these answers, in any case of letters.
func agree(p *Printer, yes bool, action, question, hint string, answers ...string) error {
	if yes {
		return nil
	}
	if !p.Interactive() {
		return &exit.Failure{Action: action, Err: errors.New("needs --yes when not interactive"), Facts: []string{question}, Code: exit.Usage}
	}
	_, _ = fmt.Fprintf(p.Streams.Err, "%s %s ", question, hint) // the answer is what counts
	line, err := ReadLine(p.Streams.In)
	if err != nil && !errors.Is(err, io.EOF) {
		return &exit.Failure{Action: action, Err: fmt.Errorf("read the answer: %w", err)}
	}
	for _, a := range answers {
		if strings.EqualFold(strings.TrimSpace(line), a) {
			return nil
		}
	}
	return &exit.Failure{Action: action, Err: errDeclined}
}

// ReadLine reads one line and no byte more.
func ReadLine(r io.Reader) (string, error) {
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
