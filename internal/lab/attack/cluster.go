package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/embedded"
)

const (
	clusterName = "attack"
	model       = "dynctl-tiny"
	frontendIP  = "127.0.0.1"
)

// target is the attacked cluster of processes.
type target struct {
	dir    string
	keep   bool
	bin    string
	url    string // of the frontend
	etcdAt string
	natsAt string

	etcd, nats *program
	nodes      []*program
	frontends  []string // their addresses; the first is url
	want       []string // what streams say when nothing happens
}

// shape is what nodes a cluster has and what it is told to be.
type shape struct {
	nodes []nodeShape
	up    []string // arguments of dynctl up
}

type nodeShape struct {
	role     string
	frontend bool
}

// attacked is the cluster that is attacked. Its first node has the frontend.
var attacked = shape{
	nodes: []nodeShape{{"prefill", true}, {"decode", false}, {"decode", false}},
	up:    []string{"--prefill", "1", "--decode", "2"},
}

func startCluster(ctx context.Context, bin string, keep bool, of shape) (_ *target, err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "attack-")
	if err != nil {
		return nil, err
	}
	c := &target{dir: dir, keep: keep, bin: bin}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if c.etcd, c.etcdAt, err = c.store("etcd"); err != nil {
		return nil, err
	}
	if c.nats, c.natsAt, err = c.store("nats"); err != nil {
		return nil, err
	}
	for i, node := range of.nodes {
		n := &program{name: "node-" + strconv.Itoa(i+1)}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		if node.frontend {
			c.frontends = append(c.frontends, "http://"+net.JoinHostPort(frontendIP, port))
		}
		args := []string{
			"--cluster", clusterName, "--state-dir", c.dir, "--node-name", n.name, "--node-roles", node.role,
			"--etcd-endpoints", c.etcdAt, "--nats-url", "nats://" + c.natsAt,
			"--frontend-enabled=" + strconv.FormatBool(node.frontend), "--frontend-port", port,
		}
		n.start = func() *exec.Cmd {
			cmd := exec.Command(filepath.Join(c.bin, "dynamod"), args...)
			if f, err := os.OpenFile(filepath.Join(c.dir, n.name+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err == nil {
				cmd.Stdout, cmd.Stderr = f, f
			}
			return cmd
		}
		if err := n.launch(); err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	c.url = c.frontends[0]
	// The first order may come before a node has joined.
	var out string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if out, err = c.dynctl(ctx, append([]string{"up"}, of.up...)...); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("bring the cluster up: %w\n%s", err, out)
		}
	}
	for i := range streamPrompts {
		text, err := c.stream(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("a stream when nothing happens: %w", err)
		}
		c.want = append(c.want, text)
	}
	return c, nil
}

// stop ends all processes.
func (c *target) stop() {
	for _, n := range c.nodes {
		n.end(syscall.SIGTERM)
	}
	for _, p := range []*program{c.nats, c.etcd} {
		if p != nil {
			p.end(syscall.SIGKILL)
		}
	}
	if c.keep {
		fmt.Println("state and logs:", c.dir)
		return
	}
	_ = os.RemoveAll(c.dir)
}

// dynctl runs a command of the operator and returns what it printed.
func (c *target) dynctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	args = append(args, "--cluster", clusterName, "--state-dir", c.dir, "--etcd-endpoints", c.etcdAt, "--nats-url", "nats://"+c.natsAt)
	out, err := exec.CommandContext(ctx, filepath.Join(c.bin, "dynctl"), args...).CombinedOutput()
	return string(out), err
}

// workers returns the names of workers of a role.
func (c *target) workers(ctx context.Context, role string) ([]string, error) {
	out, err := c.dynctl(ctx, "get", "workers", "-o", "json")
	if err != nil {
		return nil, fmt.Errorf("list workers: %w: %s", err, out)
	}
	var list []struct {
		Name string `json:"name"`
		Role string `json:"role"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("list workers: %w: %s", err, out)
	}
	var names []string
	for _, w := range list {
		if w.Role == role {
			names = append(names, w.Name)
		}
	}
	return names, nil
}

// Programs that this one starts are itself, with these variables set.
const (
	envStore = "ATTACK_STORE"
	envDir   = "ATTACK_DIR"
	envAddr  = "ATTACK_ADDR"
)

// store starts an etcd or NATS server as a process that can be killed, and returns where
// it listens.
func (c *target) store(kind string) (*program, string, error) {
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	p := &program{name: kind}
	p.start = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envStore+"="+kind, envDir+"="+filepath.Join(c.dir, kind), envAddr+"="+addr)
		cmd.Stderr = os.Stderr
		return cmd
	}
	if err := p.launch(); err != nil {
		return p, addr, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // nodes end if they find none
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return p, addr, conn.Close()
		}
		if time.Now().After(end) {
			return p, addr, fmt.Errorf("%s does not start: %w", kind, err)
		}
	}
}

// serveStore is the body of such a process; it reports false in the laboratory itself.
func serveStore() bool {
	kind := os.Getenv(envStore)
	if kind == "" {
		return false
	}
	log := slog.New(slog.DiscardHandler)
	var err error
	if kind == "etcd" {
		_, err = embedded.StartEtcd(context.Background(), embedded.EtcdOptions{Dir: os.Getenv(envDir), ClientAddr: os.Getenv(envAddr), Log: log})
	} else {
		_, err = embedded.StartNATS(context.Background(), embedded.NATSOptions{Dir: os.Getenv(envDir), Addr: os.Getenv(envAddr), Log: log})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// resident is the memory of the dynamods in bytes, without what they share with files.
func (c *target) resident() (total int64) {
	for _, n := range c.nodes {
		total += residentOf(n.pid())
	}
	return total
}

func residentOf(pid int) int64 {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(body), "\n") {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// ports are the TCP ports at which a process listens.
func ports(pid int) ([]string, error) {
	inodes := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to, "socket:[]")] = true
		}
	}
	var out []string
	for _, table := range []string{"tcp", "tcp6"} {
		body, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		sc := bufio.NewScanner(bytes.NewReader(body))
		for sc.Scan() {
			f := strings.Fields(sc.Text())
			const listening = "0A"
			if len(f) < 10 || f[3] != listening || !inodes[f[9]] {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				return nil, err
			}
			out = append(out, strconv.FormatUint(port, 10))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the process listens nowhere")
	}
	return out, nil
}

// from returns an HTTP client whose connections come from one loopback address.
func from(ip string) *http.Client {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: 10 * time.Second}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 64}}
}
