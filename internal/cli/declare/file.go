package declare

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/topofile"
)

// ReadFile reads a topology file, or standard input for "-".
func ReadFile(sess *session.Session, name, action string) (topofile.File, topofile.Source, error) {
	src := topofile.Source{Name: name, Dir: sess.Env.Dir, Home: sess.Env.Variables().Get("HOME")}
	var content []byte
	var err error
	if name == "-" {
		src.Name = "standard input"
		content, err = io.ReadAll(io.LimitReader(sess.Out.Streams.In, topofile.MaxBytes+1))
	} else {
		path := sess.Env.Path(name)
		src.Dir = filepath.Dir(path)
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return topofile.File{}, src, &exit.Failure{Action: action, Err: fmt.Errorf("topology: %w", err), Code: exit.Usage}
	}
	f, err := topofile.Parse(src, content)
	var problems topofile.Problems
	if errors.As(err, &problems) {
		fail := &exit.Failure{Action: fmt.Sprintf("%s: %s in %s", action, human.Plural(len(problems), "mistake"), src.Name), Code: exit.Usage, Tries: []string{"dynctl help topology"}}
		for _, p := range problems {
			fail.Facts = append(fail.Facts, p.Error())
		}
		return f, src, fail
	}
	TellFormer(sess.Out, &f)
	return f, src, err
}

// TellFormer tells what was spelled as the release before did.
func TellFormer(out *output.Printer, f *topofile.File) {
	for _, n := range f.Notes {
		out.Note("%s", n)
	}
	f.Notes = nil
}

// UseNamespace makes the namespace of a file that of the invocation. One that was given must be
// the same.
func UseNamespace(sess *session.Session, f topofile.File, name string) error {
	if f.Namespace == "" {
		return nil
	}
	if fl := sess.Flags.Lookup("namespace"); fl != nil && fl.Changed && f.Namespace != sess.Config.Namespace {
		return &exit.UsageError{Text: fmt.Sprintf("--namespace %s: %s is of the namespace %s", sess.Config.Namespace, name, f.Namespace)}
	}
	sess.Config.Namespace, sess.Named = f.Namespace, true
	return nil
}
