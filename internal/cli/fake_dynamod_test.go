package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/credentials"
	"github.com/dynctl/dynctl/internal/dial"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/statedir"
)

// fakeDynamod plays a dynamod process: it takes the lock of its node, runs a real etcd
// unless it gets endpoints, says where that is, and plays an agent until SIGTERM.
// FAKE_ variables change what it does.
func fakeDynamod(args []string) int {
	if len(args) > 0 && args[0] == "gpus" {
		fmt.Println(os.Getenv("FAKE_GPUS"))
		return 0
	}
	if err := playDynamod(args); err != nil {
		fmt.Fprintln(os.Stderr, "dynamod: "+err.Error())
		return 1
	}
	return 0
}

type fakeFlags struct {
	cluster, namespace, stateDir, node, endpoints, roles string
	port                                                 int
	frontend                                             bool
}

func parseFake(args []string) (fakeFlags, error) {
	var f fakeFlags
	fs := flag.NewFlagSet("dynamod", flag.ContinueOnError)
	fs.StringVar(&f.cluster, "cluster", "", "")
	fs.StringVar(&f.namespace, "namespace", "", "")
	fs.StringVar(&f.stateDir, "state-dir", "", "")
	fs.StringVar(&f.node, "node-name", "", "")
	fs.StringVar(&f.endpoints, "etcd-endpoints", "", "")
	fs.String("nats-url", "", "")
	fs.String("node-advertise-host", "", "")
	fs.StringVar(&f.roles, "node-roles", "", "")
	fs.IntVar(&f.port, "frontend-port", 0, "")
	fs.BoolVar(&f.frontend, "frontend-enabled", true, "")
	return f, fs.Parse(args)
}

func playDynamod(args []string) error {
	f, err := parseFake(args)
	if err != nil {
		return err
	}
	fmt.Println("arguments: " + strings.Join(args, " "))
	if why := os.Getenv("FAKE_FAIL"); why != "" && (os.Getenv("FAKE_FAIL_NODE") == "" || os.Getenv("FAKE_FAIL_NODE") == f.node) {
		return errors.New(why)
	}
	terms := make(chan os.Signal, 4)
	if os.Getenv("FAKE_DEAF") == "" { // else a signal ends it as it does one that has just begun
		signal.Notify(terms, syscall.SIGTERM)
	}
	c, err := statedir.Open(f.stateDir, f.cluster)
	if err != nil {
		return err
	}
	dir, err := c.Node(f.node)
	if err != nil {
		return err
	}
	lock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := dir.SetNamespace(f.namespace); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	ctx := context.Background()
	endpoints := strings.Split(f.endpoints, ",")
	secret, err := credentials.Create(c.SecretPath(), credentials.New())
	if err != nil {
		return err
	}
	if f.endpoints == "" {
		creds, err := embedded.NewCredentials(secret)
		if err != nil {
			return err
		}
		etcd, err := embedded.StartEtcd(ctx, embedded.EtcdOptions{
			Dir: dir.EtcdDir(), ClientAddr: "127.0.0.1:0", Credentials: creds, Log: log, UnsafeNoFsync: true, TickMS: 10, ElectionMS: 100,
		})
		if err != nil {
			return err
		}
		defer etcd.Close()
		endpoints = []string{config.SchemeDynamod + etcd.Endpoint()}
	}
	s, err := dial.Etcd(config.EtcdClient{}, endpoints, dial.Identity{User: "dynamod", Secret: secret}, log)
	if err != nil {
		return err
	}
	defer s.Close()
	cfg := fakeConfig{SecretFile: c.SecretPath(), Store: s, Bus: events.NewMemory(), Namespace: f.namespace, Name: f.node, Port: f.port, Load: 30 * time.Millisecond}
	if !f.frontend {
		cfg.Port = -1
	}
	if f.roles != "" {
		cfg.Roles = []cluster.Role{cluster.Role(f.roles)}
	}
	if d, err := time.ParseDuration(os.Getenv("FAKE_LOAD")); err == nil {
		cfg.Load = d
	}
	cfg.Sequences, _ = strconv.Atoi(os.Getenv("FAKE_SEQUENCES"))
	if worker, why, ok := strings.Cut(os.Getenv("FAKE_WORKER_FAIL"), "="); ok {
		cfg.Fail, cfg.Backoff = map[string]string{worker: why}, 500*time.Millisecond
	}
	if os.Getenv("FAKE_HOLD") != "" {
		cfg.Hold = &atomic.Bool{}
		cfg.Hold.Store(true)
	}
	id, err := dir.ID(func() string { return f.node + "-" + strconv.Itoa(os.Getpid()) })
	if err != nil {
		return err
	}
	cfg.NodeID, cfg.Incarnation = id, strconv.Itoa(os.Getpid())
	if _, err := runtime.RevokeStale(ctx, s, f.namespace, id, cfg.Incarnation); err != nil {
		return err
	}
	a, err := startAgent(ctx, cfg)
	if err != nil {
		return err
	}
	defer a.close()
	if d, err := time.ParseDuration(os.Getenv("FAKE_SLOW")); err == nil {
		time.Sleep(d)
	}
	if f.endpoints == "" {
		if err := c.WriteEndpoints(statedir.Endpoints{
			Cluster: f.cluster, Namespace: f.namespace, Etcd: endpoints, Node: f.node, PID: os.Getpid(), StartedAt: time.Now(),
		}); err != nil {
			return err
		}
		defer c.RemoveEndpoints()
	}
	for {
		<-terms
		if os.Getenv("FAKE_STUBBORN") != f.node {
			return nil
		}
	}
}
