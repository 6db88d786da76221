package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/statedir"
)

// Where a dynamod that the packages run as a system service keeps its state, and the mark that
// systemd keeps of a service that is active.
const (
	systemState = "/var/lib/dynctl"
	systemMark  = "/run/systemd/units/invocation:dynamod.service"
)

// Service is the dynamod that the system runs beside the clusters of the user.
type Service struct {
	Dir      string   // of its state
	Clusters []string // that run; empty if the user may not read which
}

// Service finds the dynamod that a system service runs; nil if there is none, or if this run
// already works with its state.
func (s *Session) Service() *Service {
	dir := filepath.Join("/", s.Env.Root, systemState)
	if s.Config.StateDir == dir {
		return nil
	}
	all, err := statedir.Clusters(dir)
	if errors.Is(err, fs.ErrPermission) { // the state belongs to the service's user alone
		if _, err := os.Lstat(filepath.Join("/", s.Env.Root, systemMark)); err != nil {
			return nil
		}
		return &Service{Dir: dir}
	}
	if err != nil {
		return nil
	}
	found := &Service{Dir: dir}
	for _, c := range all {
		if _, err := c.Endpoints(); err == nil {
			found.Clusters = append(found.Clusters, c.Name)
		}
	}
	if len(found.Clusters) == 0 {
		return nil
	}
	return found
}

// String says what runs.
func (y *Service) String() string {
	what := "dynamod"
	if len(y.Clusters) > 0 {
		what = "cluster " + strings.Join(y.Clusters, ", ")
	}
	return fmt.Sprintf("%s runs here as a system service (systemctl status dynamod), with its state in %s", what, y.Dir)
}

// Use is a command line of dynctl as it works with that dynamod.
func (y *Service) Use(command string) string {
	line := command + " --state-dir " + y.Dir
	if len(y.Clusters) == 0 {
		return "sudo " + line
	}
	if y.Clusters[0] != config.DefaultCluster {
		line += " --cluster " + y.Clusters[0]
	}
	return line
}

// Second refuses to start a cluster beside that of a system service, unless the command line
// or the configuration asks for one of another name, place or port.
func (s *Session) Second(action string) error {
	y := s.Service()
	if y == nil || s.Origins.Set("cluster") || s.Origins.Set("state_dir") || s.Given("port") {
		return nil
	}
	return &exit.Failure{
		Action: action, Err: errors.New(y.String()), Facts: []string{"nothing was started"},
		Tries: []string{y.Use(s.Command) + "   to change it", s.Command + " --cluster NAME --port PORT   for a second cluster beside it"},
	}
}
