package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// Session is one run of one command: its settings, its printer and the connections that it
// opens. Whoever began it closes it.
type Session struct {
	Env     Env
	Out     *output.Printer
	Config  config.Dynctl
	Origins *config.Origins
	Log     *slog.Logger
	// Named is set when a namespace was chosen, and not the default.
	Named   bool
	Command string // as dynctl drain
	Flags   *pflag.FlagSet

	joined bool // the stores are those of a join token
	// otherBackend says that something else holds the state than the settings say.
	otherBackend error
	open         []io.Closer
}

// Given reports whether a flag stands on the command line.
func (s *Session) Given(flag string) bool { return s.Flags.Changed(flag) }

// FrontendKeyVariable holds the API key of frontends, or several of them.
const FrontendKeyVariable = "DYNAMOD_FRONTEND_API_KEY"

// FrontendKey is the key that frontends get from this run; empty for none.
func (s *Session) FrontendKey() string {
	key, _, _ := strings.Cut(s.Env.Variables().Get(FrontendKeyVariable), ",")
	return strings.TrimSpace(key)
}

// FrontendTLS returns the settings of HTTPS to frontends.
func (s *Session) FrontendTLS() (*tls.Config, error) {
	f, err := certs.Follow(s.Config.Frontend.TLSFiles(), s.Log)
	if err != nil {
		return nil, err
	}
	return f.TLS(), nil
}

// ReadOnly says why changes are refused; empty when they are not.
func (s *Session) ReadOnly() string {
	if !s.Config.ReadOnly {
		return ""
	}
	if v, ok := s.Origins.Of("read_only"); ok {
		return "read-only is set by " + v.Origin.String()
	}
	return "read-only is set"
}

// Writable is the error of a command that changes the cluster where changes are refused.
func (s *Session) Writable() error {
	if why := s.ReadOnly(); why != "" {
		return &exit.Failure{Action: "cannot run " + s.Command, Err: errors.New("it changes the cluster, and " + why)}
	}
	return nil
}

// CloseFirst has c closed when the session ends, before the connections that it uses.
func (s *Session) CloseFirst(c io.Closer) { s.open = slices.Insert(s.open, 0, c) }

// Close ends the connections of the session. Nothing is buffered in them.
func (s *Session) Close() {
	for _, c := range s.open {
		_ = c.Close()
	}
	s.open = nil
}

// Target returns the settings of the connection: without a namespace, unless one was chosen.
func (s *Session) Target() config.Dynctl {
	cfg := s.Config
	if !s.Named {
		cfg.Namespace = ""
	}
	return cfg
}

// Connect reaches the cluster, until the session ends; action begins the message when it
// cannot.
func (s *Session) Connect(ctx context.Context, action string) (*client.Cluster, error) {
	c, err := client.Connect(ctx, s.Target(), s.Log)
	switch {
	case err == nil:
		s.open = append(s.open, c)
		return c, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, statedir.ErrNotRunning):
		return nil, s.NotRunning(action)
	case errors.Is(err, client.ErrUnreachable):
		return nil, &exit.Failure{Action: action, Err: err, Tries: []string{"dynctl doctor"}}
	}
	return nil, &exit.Failure{Action: action, Err: err}
}

// Watch reaches the cluster and follows it; the caller closes the watch.
func (s *Session) Watch(ctx context.Context, action string) (*client.Cluster, *client.Watch, error) {
	c, err := s.Connect(ctx, action)
	if err != nil {
		return nil, nil, err
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return nil, nil, &exit.Failure{Action: action, Err: err}
	}
	return c, w, nil
}

// Look reaches the cluster and reads it once.
func (s *Session) Look(ctx context.Context, action string) (*client.Cluster, client.View, error) {
	c, err := s.Connect(ctx, action)
	if err != nil {
		return nil, client.View{}, err
	}
	v, err := c.View(ctx)
	if err != nil {
		return nil, v, &exit.Failure{Action: action, Err: err}
	}
	return c, v, nil
}

// NotRunning is the error of a command that needs a cluster where none runs.
func (s *Session) NotRunning(action string) error {
	f := &exit.Failure{
		Action: action, Err: fmt.Errorf("cluster %s does not run on this machine", s.Config.Cluster), Code: exit.Unreachable,
		Tries: []string{"dynctl up", "dynctl join TOKEN, or --etcd-endpoints host:port, for a cluster elsewhere"},
	}
	if y := s.Service(); y != nil {
		f.Facts = append(f.Facts, y.String())
		f.Tries = []string{y.Use(s.Command), f.Tries[1]}
	}
	if starting := s.starting(); len(starting) > 0 {
		f.Err = fmt.Errorf("cluster %s does not say yet where its store is", s.Config.Cluster)
		f.Facts = append(f.Facts, "running here: "+strings.Join(starting, ", "))
		f.Tries = []string{s.Command + "   once it has started", "dynctl logs", "dynctl down"}
	}
	if others := s.RunningClusters(); len(others) > 0 {
		f.Facts = append(f.Facts, "running here: "+strings.Join(others, ", "))
		f.Tries = slices.Insert(f.Tries, 0, s.Command+" --cluster "+others[0])
	}
	return f
}
