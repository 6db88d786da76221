package judge

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/host"
)

// Limits below which the checks warn, and below which they fail. They are rough on purpose:
// "dynctl model inspect" computes the needs of a model.
const (
	littleDisk, noDisk     = 1 << 30, 64 << 20
	littleMemory, noMemory = 1 << 30, 256 << 20
	fewFiles, noFiles      = 4096, 256
)

// Memory judges the memory that is left.
func Memory(m host.Memory) Finding {
	if m.Usable() == 0 {
		return Skipped("this system does not report it")
	}
	text := human.Bytes(m.Available) + " of " + human.Bytes(m.Total) + " available"
	if m.Limit > 0 {
		text += fmt.Sprintf("; its control group allows %s, of which %s are left", human.Bytes(m.Limit), human.Bytes(m.LimitLeft))
	}
	const fix = "end what is not needed, or serve with a smaller --kv-blocks; dynctl model inspect says what a model needs"
	f := good("%s", text)
	switch {
	case m.Usable() < noMemory:
		f = Bad(fix, "%s", text)
	case m.Usable() < littleMemory:
		f = poor(fix, "%s", text)
	}
	return f.With("total_bytes", m.Total).With("available_bytes", m.Available).With("cgroup_limit_bytes", m.Limit).With("usable_bytes", m.Usable())
}

// Certificates judges the files of certificates of n servers that dynctl talks to.
func Certificates(n int, problems []string) Finding {
	switch {
	case n == 0:
		return Skipped("dynctl uses no certificates from files")
	case len(problems) > 0:
		return poor("dynctl certs show, and dynctl certs issue NAME --renew", "%s", firstOf(problems))
	}
	return good("those of %s of the settings are valid", human.Plural(n, "section"))
}

// OpenFiles judges how many files a process may open.
func OpenFiles(n uint64, err error) Finding {
	if err != nil {
		return poor("", "%v", err)
	}
	text := "any number of files may be open"
	if n < 1<<40 {
		text = human.Commas(int(n)) + " files may be open"
	}
	f := good("%s", text)
	switch {
	case n < noFiles:
		f = Bad("ulimit -Hn 65536, or LimitNOFILE= of the unit", "%s: every stream and connection takes one", text)
	case n < fewFiles:
		f = poor("ulimit -Hn 65536, or LimitNOFILE= of the unit", "%s: every stream and connection takes one", text)
	}
	return f.With("limit", n)
}

// littleLocked is less than KV pools and arenas of any use.
const littleLocked = 64 << 20

// LockedMemory judges how much memory may be locked, which the RDMA devices need.
func LockedMemory(n uint64, err error, rdma []string) Finding {
	if err != nil {
		return poor("", "%v", err)
	}
	text := "any amount"
	if n < 1<<50 {
		text = human.Bytes(int64(n))
	}
	text += " may be locked"
	f := good("%s; no RDMA device needs it", text)
	switch {
	case len(rdma) > 0 && n < littleLocked:
		f = poor("ulimit -l unlimited, or LimitMEMLOCK= of the unit; until then nixl.transports without ucx", "%s; the RDMA device %s needs all KV memory locked", text, human.Names(rdma))
	case len(rdma) > 0:
		f = good("%s; RDMA devices: %s", text, human.Names(rdma))
	}
	return f.With("limit_bytes", n).With("rdma_devices", rdma)
}

// HugePages tells how the system backs memory.
func HugePages(h host.HugePages) Finding {
	if h == (host.HugePages{}) {
		return Skipped("this system does not report it")
	}
	f := good("transparent ones: %s; %s of %s reserved, %d of them free", human.OrDash(h.Transparent), human.Plural(int(h.Reserved), "page"), human.Bytes(h.Size), h.Free)
	return f.With("transparent", h.Transparent).With("reserved", h.Reserved).With("free", h.Free).With("page_bytes", h.Size)
}

// StateDir is the directory for the state of clusters, as it was found.
type StateDir struct {
	Path string // empty: none is known
	At   string // the directory itself, or the one in which it would be made
	Err  error  // why nothing can be written there
	// Free and Total are the bytes of its disk; DiskErr says why they are not known.
	Free, Total uint64
	DiskErr     error
}

const stateDirFix = "--state-dir DIR, or DYNCTL_STATE_DIR"

// Judge says whether state can be kept there.
func (d StateDir) Judge() Finding {
	switch {
	case d.Path == "":
		return Bad(stateDirFix, "no directory is known: HOME is not set")
	case d.Err != nil:
		return Bad(stateDirFix, "%v", d.Err)
	}
	text := d.Path + " can be written to"
	if d.At != d.Path {
		text = d.Path + " can be made in " + d.At
	}
	if d.DiskErr != nil {
		return poor("", "%s; %v", text, d.DiskErr)
	}
	text += fmt.Sprintf(", %s of %s free", human.Bytes(int64(d.Free)), human.Bytes(int64(d.Total)))
	f := good("%s", text)
	switch {
	case d.Free < noDisk:
		f = Bad("make room, or "+stateDirFix, "%s: too little for the store and NATS", text)
	case d.Free < littleDisk:
		f = poor("make room, or "+stateDirFix, "%s", text)
	}
	return f.With("path", d.Path).With("free_bytes", d.Free).With("total_bytes", d.Total)
}

// CPU tells what the processor can do.
func CPU(arch string, cores int, features []string) Finding {
	text := fmt.Sprintf("%s, %s", arch, human.Plural(cores, "core"))
	if len(features) > 0 {
		text += ": " + strings.Join(features, " ")
	}
	return good("%s", text).With("arch", arch).With("cores", cores).With("features", features)
}

// Port describes the port at which a frontend of this machine would listen.
type Port struct {
	Number  int
	Addr    string
	Err     error    // why it cannot listen there
	Who     string   // listens there, if it says so
	Notes   []string // about other ports
	Pending string   // why nothing will listen there; empty if something will
}

// Judge says whether the port is free.
func (p Port) Judge() Finding {
	switch {
	case p.Pending != "":
		return Skipped("%s", p.Pending)
	case p.Err == nil:
		return good("%s", strings.Join(append([]string{p.Addr + " is free for a frontend"}, p.Notes...), "; ")).With("port", p.Number)
	}
	text := p.Err.Error()
	if p.Who != "" {
		text += "; " + p.Who
	}
	return poor(fmt.Sprintf("dynctl up --port %d, or 0 for a free one", p.Number%65535+1), "%s", text).With("port", p.Number)
}

// Program is the dynamod that dynctl would start.
type Program struct {
	Path      string
	Err       error  // why none was found
	RunErr    error  // why it does not run
	Version   string // what it says about itself
	Elsewhere bool   // the cluster's nodes are started elsewhere
}

// Judge compares the program with own, the version of dynctl.
func (p Program) Judge(own string) Finding {
	const fix = "keep dynctl and dynamod of one release in one directory"
	switch {
	case p.Err != nil && p.Elsewhere:
		return Skipped("%v; the cluster's nodes are started elsewhere", p.Err)
	case p.Err != nil:
		return Bad(fix, "%v", p.Err)
	case p.RunErr != nil:
		return Bad(fix, "%s does not run: %v", p.Path, p.RunErr)
	}
	first, note, _ := strings.Cut(strings.TrimSpace(p.Version), "\n")
	theirs := strings.TrimSpace(strings.TrimPrefix(first, "dynamod version"))
	f := good("%s, %s as dynctl", p.Path, own)
	if note = strings.TrimSpace(note); note != "" { // how it was built
		f = good("%s, %s as dynctl; %s", p.Path, own, note)
	}
	if theirs != own {
		f = Bad(fix, "%s is %s, dynctl is %s", p.Path, theirs, own)
	}
	return f.With("path", p.Path).With("version", theirs)
}
