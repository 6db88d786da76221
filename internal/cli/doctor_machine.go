package cli

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
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/launch"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/host"
	"github.com/dynctl/dynctl/internal/openai"
)

// What is little, and what is too little. They are rough on purpose: how much a model
// needs is what "dynctl model inspect" says.
const (
	littleDisk, noDisk     = 1 << 30, 64 << 20
	littleMemory, noMemory = 1 << 30, 256 << 20
	fewFiles, noFiles      = 4096, 256
)

func (o *doctorCommand) machineChecks(inv *invocation) []check {
	const group = "this machine"
	m := host.Machine{Root: "/"}
	return []check{
		{"state-dir", group, func(context.Context) finding { return checkStateDir(inv.cfg.StateDir) }},
		{"memory", group, func(context.Context) finding { return checkMemory(m.Memory()) }},
		{"open-files", group, func(context.Context) finding { return checkFiles(host.OpenFiles()) }},
		{"huge-pages", group, func(context.Context) finding { return checkHugePages(m.HugePages()) }},
		{"locked-memory", group, func(context.Context) finding {
			n, err := host.LockedMemory()
			return checkLocked(n, err, m.RDMA())
		}},
		{"cpu", group, func(context.Context) finding { return checkCPU() }},
		{"gpu", group, func(ctx context.Context) finding {
			s, err := askGPUs(ctx, inv)
			return checkGPUs(m.GPUs(), s, err)
		}},
		{"port", group, func(ctx context.Context) finding { return o.checkPort(ctx, inv) }},
		{"dynamod", group, func(ctx context.Context) finding { return checkProgram(ctx, inv) }},
	}
}

func checkStateDir(dir string) finding {
	const fix = "--state-dir DIR, or DYNCTL_STATE_DIR"
	if dir == "" {
		return bad(fix, "no directory is known: HOME is not set")
	}
	at := dir // or the directory in which it would be made
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return bad(fix, "%s is not a directory", at)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(at) == at {
			return bad(fix, "%v", err)
		}
		at = filepath.Dir(at)
	}
	probe, err := os.CreateTemp(at, ".dynctl-doctor-")
	if err != nil {
		return bad(fix, "cannot write: %v", err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return bad(fix, "cannot write: %v", err)
	}
	text := dir + " can be written to"
	if at != dir {
		text = dir + " can be made in " + at
	}
	free, total, err := host.Disk(at)
	if err != nil {
		return poor("", "%s; %v", text, err)
	}
	text += fmt.Sprintf(", %s of %s free", size(int64(free)), size(int64(total)))
	f := good("%s", text)
	switch {
	case free < noDisk:
		f = bad("make room, or "+fix, "%s: too little for etcd and NATS", text)
	case free < littleDisk:
		f = poor("make room, or "+fix, "%s", text)
	}
	return f.with("path", dir).with("free_bytes", free).with("total_bytes", total)
}

func checkMemory(m host.Memory) finding {
	if m.Usable() == 0 {
		return skipped("this system does not tell")
	}
	text := size(m.Available) + " of " + size(m.Total) + " available"
	if m.Limit > 0 {
		text += fmt.Sprintf("; its control group allows %s, of which %s are left", size(m.Limit), size(m.LimitLeft))
	}
	const fix = "end what is not needed, or serve with a smaller --kv-blocks; dynctl model inspect says what a model needs"
	f := good("%s", text)
	switch {
	case m.Usable() < noMemory:
		f = bad(fix, "%s", text)
	case m.Usable() < littleMemory:
		f = poor(fix, "%s", text)
	}
	return f.with("total_bytes", m.Total).with("available_bytes", m.Available).with("cgroup_limit_bytes", m.Limit).with("usable_bytes", m.Usable())
}

func checkFiles(n uint64, err error) finding {
	if err != nil {
		return poor("", "%v", err)
	}
	text := "any number of files may be open"
	if n < 1<<40 {
		text = commas(int(n)) + " files may be open"
	}
	f := good("%s", text)
	switch {
	case n < noFiles:
		f = bad("ulimit -Hn 65536, or LimitNOFILE= of the unit", "%s: every stream and connection takes one", text)
	case n < fewFiles:
		f = poor("ulimit -Hn 65536, or LimitNOFILE= of the unit", "%s: every stream and connection takes one", text)
	}
	return f.with("limit", n)
}

// littleLocked is less than KV pools and arenas of any use.
const littleLocked = 64 << 20

func checkLocked(n uint64, err error, rdma []string) finding {
	if err != nil {
		return poor("", "%v", err)
	}
	text := "any amount"
	if n < 1<<50 {
		text = size(int64(n))
	}
	text += " may be locked"
	f := good("%s; no RDMA device needs it", text)
	switch {
	case len(rdma) > 0 && n < littleLocked:
		f = poor("ulimit -l unlimited, or LimitMEMLOCK= of the unit; until then nixl.transports without ucx", "%s; the RDMA device %s needs all KV memory locked", text, nameList(rdma))
	case len(rdma) > 0:
		f = good("%s; RDMA devices: %s", text, nameList(rdma))
	}
	return f.with("limit_bytes", n).with("rdma_devices", rdma)
}

func checkHugePages(h host.HugePages) finding {
	if h == (host.HugePages{}) {
		return skipped("this system does not tell")
	}
	f := good("transparent ones: %s; %s of %s reserved, %d of them free", orDash(h.Transparent), plural(int(h.Reserved), "page"), size(h.Size), h.Free)
	return f.with("transparent", h.Transparent).with("reserved", h.Reserved).with("free", h.Free).with("page_bytes", h.Size)
}

func checkCPU() finding {
	arch, cores, features := host.Processor()
	text := fmt.Sprintf("%s, %s", arch, plural(cores, "core"))
	if len(features) > 0 {
		text += ": " + strings.Join(features, " ")
	}
	return good("%s", text).with("arch", arch).with("cores", cores).with("features", features)
}

// checkPort looks whether a frontend could listen where "dynctl up" puts it.
func (o *doctorCommand) checkPort(ctx context.Context, inv *invocation) finding {
	if inv.external() {
		return skipped("the cluster's nodes are started elsewhere")
	}
	if local, err := inv.local(); err == nil {
		if _, err := local.Endpoints(); err == nil {
			return skipped("cluster %s runs and has its port", inv.cfg.Cluster)
		}
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		_ = l.Close() // nobody has connected
		text := addr + " is free for a frontend"
		for _, embedded := range []struct{ name, addr string }{{"etcd", config.DefaultEtcdListen}, {"NATS", config.DefaultNATSListen}} {
			if l, err := lc.Listen(ctx, "tcp", embedded.addr); err == nil {
				_ = l.Close()
			} else {
				text += fmt.Sprintf("; %s of the embedded %s is taken, it will use another one", embedded.addr, embedded.name)
			}
		}
		return good("%s", text).with("port", o.port)
	}
	fix := fmt.Sprintf("dynctl up --port %d, or 0 for a free one", o.port%65535+1)
	text := err.Error()
	if who := whoListens(ctx, addr); who != "" {
		text += "; " + who
	}
	return poor(fix, "%s", text).with("port", o.port)
}

// whoListens asks what is in the way; empty when it does not say.
func whoListens(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, frontendTimeout)
	defer cancel()
	c, err := openai.New("http://"+addr, "")
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

func checkProgram(ctx context.Context, inv *invocation) finding {
	own := buildVersion().Version
	const fix = "keep dynctl and dynamod of one release in one directory"
	path, err := launch.Find(inv.env.Executable, inv.variables().Get("PATH"))
	switch {
	case err != nil && inv.external():
		return skipped("%v; the cluster's nodes are started elsewhere", err)
	case err != nil:
		return bad(fix, "%v", err)
	}
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env, cmd.WaitDelay = inv.env.Environ, time.Second // what it leaves behind does not hold us up
	out, err := cmd.Output()
	if err != nil {
		return bad(fix, "%s does not run: %v", path, err)
	}
	first, note, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	theirs := strings.TrimSpace(strings.TrimPrefix(first, "dynamod version"))
	f := good("%s, %s as dynctl", path, own)
	if note = strings.TrimSpace(note); note != "" { // how it was built
		f = good("%s, %s as dynctl; %s", path, own, note)
	}
	if theirs != own {
		f = bad(fix, "%s is %s, dynctl is %s", path, theirs, own)
	}
	return f.with("path", path).with("version", theirs)
}
