package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/doctor/judge"
	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/host"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/version"
)

// machineChecks returns the checks of this machine, in order.
func (o *Options) machineChecks() []check {
	const group = "this machine"
	m := host.Machine{Root: "/"}
	return []check{
		{"state-dir", group, func(context.Context) judge.Finding { return lookAtStateDir(o.Session.Config.StateDir).Judge() }},
		{"memory", group, func(context.Context) judge.Finding { return judge.Memory(m.Memory()) }},
		{"open-files", group, func(context.Context) judge.Finding { return judge.OpenFiles(host.OpenFiles()) }},
		{"huge-pages", group, func(context.Context) judge.Finding { return judge.HugePages(m.HugePages()) }},
		{"locked-memory", group, func(context.Context) judge.Finding {
			n, err := host.LockedMemory()
			return judge.LockedMemory(n, err, m.RDMA())
		}},
		{"cpu", group, func(context.Context) judge.Finding { return judge.CPU(host.Processor()) }},
		{"gpu", group, func(ctx context.Context) judge.Finding {
			s, err := o.askGPUs(ctx)
			return judge.GPUs(m.GPUs(), s, err)
		}},
		{"port", group, func(ctx context.Context) judge.Finding { return o.lookAtPort(ctx).Judge() }},
		{"certificates", group, func(context.Context) judge.Finding { return judge.Certificates(o.lookAtCertificates()) }},
		{"dynamod", group, func(ctx context.Context) judge.Finding { return o.lookAtProgram(ctx).Judge(version.String()) }},
	}
}

// lookAtStateDir finds out whether the directory, or the one in which it would be made, can
// be written to.
func lookAtStateDir(dir string) judge.StateDir {
	d := judge.StateDir{Path: dir, At: dir}
	if dir == "" {
		return d
	}
	for {
		info, err := os.Stat(d.At)
		if err == nil && !info.IsDir() {
			d.Err = fmt.Errorf("%s is not a directory", d.At)
			return d
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(d.At) == d.At {
			d.Err = err
			return d
		}
		d.At = filepath.Dir(d.At)
	}
	probe, err := os.CreateTemp(d.At, ".dynctl-doctor-")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		d.Err = fmt.Errorf("cannot write: %w", err)
		return d
	}
	d.Free, d.Total, d.DiskErr = host.Disk(d.At)
	return d
}

// lookAtPort looks whether a frontend could listen where "dynctl up" puts it.
func (o *Options) lookAtPort(ctx context.Context) judge.Port {
	s := o.Session
	p := judge.Port{Number: o.Port, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port))}
	if s.External() {
		p.Pending = "the cluster's nodes are started elsewhere"
		return p
	}
	if local, err := s.Local(); err == nil {
		if _, err := local.Endpoints(); err == nil {
			p.Pending = fmt.Sprintf("cluster %s runs and has its port", s.Config.Cluster)
			return p
		}
	}
	if p.Err = free(ctx, p.Addr); p.Err != nil {
		p.Who = whoListens(ctx, p.Addr)
		return p
	}
	for _, embedded := range []struct{ name, addr string }{{"etcd", config.DefaultEtcdListen}, {"NATS", config.DefaultNATSListen}} {
		d := s.Config.Discovery
		if embedded.name == "etcd" && (d.InFiles() || d.InNATS()) {
			continue
		}
		if free(ctx, embedded.addr) != nil {
			p.Notes = append(p.Notes, fmt.Sprintf("%s of the embedded %s is in use, it will take a free port", embedded.addr, embedded.name))
		}
	}
	return p
}

// free returns nil if an address is free to listen at.
func free(ctx context.Context, addr string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		_ = l.Close() // nobody has connected
	}
	return err
}

// whoListensTimeout bounds the question to what is in the way.
const whoListensTimeout = 500 * time.Millisecond

// whoListens asks what is in the way; empty when it does not say.
func whoListens(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, whoListensTimeout)
	defer cancel()
	c, err := openai.New("http://"+addr, "", nil)
	if err != nil {
		return ""
	}
	defer c.Close()
	models, err := c.Models(ctx)
	if err != nil || len(models) == 0 {
		return ""
	}
	return "a frontend that serves " + models[0].ID + " listens there"
}

// lookAtCertificates reads the files of certificates that dynctl is to use. It returns how
// many settings name some, and what is wrong with them.
func (o *Options) lookAtCertificates() (n int, problems []string) {
	c := o.Session.Config
	for _, files := range []config.TLSFiles{c.Etcd.TLSFiles(), c.NATS.TLSFiles(), c.Frontend.TLSFiles()} {
		if !files.Any() {
			continue
		}
		n++
		f, err := certs.Follow(files, o.Session.Log)
		if err != nil {
			problems = append(problems, err.Error())
		} else if text := f.Problem(); text != "" {
			problems = append(problems, text)
		}
	}
	return n, problems
}

// lookAtProgram finds the dynamod that dynctl would start and asks it for its version.
func (o *Options) lookAtProgram(ctx context.Context) judge.Program {
	p := judge.Program{Elsewhere: o.Session.External()}
	var out []byte
	if p.Path, out, p.Err, p.RunErr = o.dynamod(ctx, "--version"); p.RunErr == nil {
		p.Version = string(out)
	}
	return p
}

// dynamod runs the program and returns what it prints. missing says why there is none.
func (o *Options) dynamod(ctx context.Context, args ...string) (path string, out []byte, missing, failed error) {
	env := o.Session.Env
	path, err := launch.Find(launch.Program, env.Executable, env.Variables().Get("PATH"))
	if err != nil {
		return "", nil, err, nil
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.WaitDelay = env.Environ, time.Second // what it leaves behind does not hold us up
	out, err = cmd.Output()
	return path, out, nil, err
}
