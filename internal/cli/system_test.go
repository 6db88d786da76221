package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cli/clitest"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/statedir"
)

// What the packages run as a system service is found, and no second cluster starts beside it
// without a word.
func TestSystemServicesAreFound(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "var/lib/dynctl")
	run := func(line string) result {
		t.Helper()
		var out, errs bytes.Buffer
		env := session.Env{
			Streams: term.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, Environ: []string{"HOME=" + t.TempDir()}, Dir: root, Root: root,
			Executable: func() (string, error) { return "/nowhere/dynctl", nil },
		}
		code := Main(t.Context(), strings.Fields(line), env)
		return result{out.String(), errs.String(), code}
	}
	if r := run("ps"); r.code != exit.Unreachable || !strings.Contains(r.stderr, "try: dynctl up\n") || strings.Contains(r.stderr, "service") {
		t.Errorf("without a service: %+v", r)
	}
	c, err := statedir.Open(dir, "local")
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Node("host-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	lock, err := n.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteEndpoints(statedir.Endpoints{Cluster: "local", Etcd: []string{"127.0.0.1:1"}, Node: "host-1", PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	found := "cluster local runs here as a system service (systemctl status dynamod), with its state in " + dir + "\n"
	r := run("ps")
	if clitest.Has(t, "ps", r.stderr, found, "try: dynctl ps --state-dir "+dir+"\n"); r.code != exit.Unreachable || strings.Contains(r.stderr, "dynctl up") {
		t.Errorf("ps: %+v", r)
	}
	r = run("up")
	if clitest.Has(t, "up", r.stderr, "cannot start the cluster: "+found, "nothing was started", "try: dynctl up --state-dir "+dir+"   to change it\n", "--cluster NAME --port PORT"); r.code != exit.Failed {
		t.Errorf("up: %+v", r)
	}
	clitest.Has(t, "doctor", run("doctor").stdout, "dynctl doctor --state-dir "+dir)
	for _, line := range []string{"up --cluster second", "up --port 0"} { // these ask for another one
		if r := run(line); !strings.Contains(r.stderr, "dynamod not found") {
			t.Errorf("%s: %+v", line, r)
		}
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if r := run("ps"); strings.Contains(r.stderr, "service") {
		t.Errorf("a service that has ended: %+v", r)
	}
}

// The state of a service belongs to its user alone: systemd says whether it runs.
func TestSystemServicesWithStateOfTheirOwn(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "var/lib/dynctl"), 0o000); err != nil {
		t.Fatal(err)
	}
	units := filepath.Join(root, "run/systemd/units")
	if err := os.MkdirAll(units, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("1234", filepath.Join(units, "invocation:dynamod.service")); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	env := session.Env{Streams: term.Streams{Out: &out, Err: &errs}, Environ: []string{"HOME=" + t.TempDir()}, Dir: root, Root: root}
	Main(t.Context(), []string{"ps"}, env)
	clitest.Has(t, "ps", errs.String(), "dynamod runs here as a system service", "try: sudo dynctl ps --state-dir ")
}
