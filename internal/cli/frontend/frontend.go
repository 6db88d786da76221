package frontend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/openai"
)

// Place says which frontend is meant.
type Place struct {
	Address string // empty for the cluster's first one
	Key     string // empty for that of the session
}

// Find returns a client of a frontend until the session ends. action begins the message when
// there is none.
func Find(ctx context.Context, s *session.Session, p Place, action string) (*openai.Client, error) {
	if p.Address != "" {
		c, err := open(s, p)
		if err != nil && !errors.Is(err, errSettings) {
			err = &exit.UsageError{Text: "--url: " + err.Error()}
		}
		return c, err
	}
	c, err := s.Connect(ctx, action)
	if err != nil {
		return nil, err
	}
	v, err := c.View(ctx)
	if err != nil {
		return nil, &exit.Failure{Action: action, Err: err}
	}
	urls := v.Frontends()
	if len(urls) == 0 {
		return nil, noFrontend(s, action, v)
	}
	p.Address = urls[0]
	found, err := open(s, p)
	if errors.Is(err, errSettings) {
		return nil, err
	}
	if err != nil {
		return nil, &exit.Failure{Action: action, Err: fmt.Errorf("address of the frontend: %w", err)}
	}
	return found, nil
}

// errSettings is returned for files of certificates that cannot be used.
var errSettings = errors.New("cannot use the settings of HTTPS to frontends")

// New returns a client of the frontend at an address, until the session ends.
func New(s *session.Session, address string) (*openai.Client, error) {
	return open(s, Place{Address: address})
}

func open(s *session.Session, p Place) (*openai.Client, error) {
	secure, err := s.FrontendTLS()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSettings, err)
	}
	c, err := openai.New(p.Address, cmp.Or(p.Key, s.FrontendKey()), secure)
	if err != nil {
		return nil, err
	}
	s.CloseFirst(closing(c.Close))
	return c, nil
}

// closing is an io.Closer that cannot fail.
type closing func()

func (c closing) Close() error { c(); return nil }

func noFrontend(sess *session.Session, action string, v client.View) error {
	err := fmt.Errorf("no node of cluster %s has an HTTP frontend", sess.Config.Cluster)
	if len(v.Nodes) == 0 {
		err = fmt.Errorf("no node of cluster %s is up", sess.Config.Cluster)
	}
	return &exit.Failure{Action: action, Err: err, Code: exit.Unreachable, Tries: []string{"dynctl ps --nodes -o wide", "--url http://host:port"}}
}

// ErrSilent is returned when a frontend does not say anything for too long.
var ErrSilent = errors.New("no answer in time")

// Failure makes an error of a frontend one that says what to do next.
func Failure(sess *session.Session, action string, c *openai.Client, err error) error {
	f := &exit.Failure{Action: action, Err: err}
	var said *openai.Error
	known := errors.As(err, &said)
	switch {
	case errors.Is(err, openai.ErrUnreachable):
		f.Err = fmt.Errorf("%s: %w", c.URL(), err)
		if strings.Contains(err.Error(), c.URL()) {
			f.Err = err
		}
		f.Code, f.Tries = exit.Unreachable, []string{"dynctl doctor", "dynctl ps --nodes"}
	case errors.Is(err, openai.ErrCertificate):
		f.Err = fmt.Errorf("%s: %w", c.URL(), err)
		if strings.Contains(err.Error(), c.URL()) {
			f.Err = err
		}
		f.Code, f.Tries = exit.Unreachable, []string{DistrustFix}
	case errors.Is(err, ErrSilent):
		f.Tries = []string{"--timeout 10m", "dynctl top   to see what requests wait for"}
	case errors.Is(err, openai.ErrBroken):
		f.Tries = []string{"dynctl ps", "dynctl logs"}
	case errors.Is(err, openai.ErrProtocol):
		f.Err = fmt.Errorf("%s: %w", c.URL(), err)
	case !known:
	case said.Status == 401 || said.Status == 403:
		f.Tries = []string{"export DYNAMOD_FRONTEND_API_KEY=...   the key that the frontend was started with"}
	case said.Temporary():
		f.Tries = []string{"dynctl ps", "--timeout 10m, to wait longer"}
	case said.Code == "context_length_exceeded":
		f.Tries = []string{"a shorter prompt, or a smaller --max-tokens"}
	}
	return f
}

// DistrustFix is what to do about [openai.ErrCertificate].
const DistrustFix = "dynctl config set frontend.ca_file FILE   its authority; frontend.cert_file and key_file where it asks for a certificate"

// Model chooses the model to talk to: want, or the only one that is served.
func Model(ctx context.Context, sess *session.Session, c *openai.Client, action, want string, wait time.Duration) (openai.Model, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrSilent)
	defer cancel()
	models, err := c.Models(ctx)
	if err != nil {
		return openai.Model{}, Failure(sess, action, c, err)
	}
	var ids []string
	for _, m := range models {
		if m.ID == want || want == "" && len(models) == 1 {
			return m, nil
		}
		ids = append(ids, m.ID)
	}
	switch {
	case len(models) == 0:
		return openai.Model{}, &exit.Failure{Action: action, Err: fmt.Errorf("%s serves no model at present", c.URL()), Tries: []string{"dynctl ps", "dynctl up"}}
	case want == "":
		return openai.Model{}, &exit.Failure{Action: action, Err: fmt.Errorf("%s serves several models", c.URL()), Facts: []string{"served: " + strings.Join(ids, ", ")}, Tries: []string{sess.Command + " --model " + human.ShellQuote(ids[0])}, Code: exit.Usage}
	}
	return openai.Model{}, &exit.Failure{
		Action: action, Err: fmt.Errorf("%s does not serve the model %s", c.URL(), want), Facts: []string{"served: " + strings.Join(ids, ", ")},
		Tries: []string{sess.Command + " --model " + human.ShellQuote(ids[0])},
	}
}
