package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/dynctl/dynctl/internal/embedded"
)

// The test binary is also the process that the kill tests kill: with these
// variables set, it serves until then instead of testing.
const (
	envKind = "EMBEDDED_TEST_SERVE"
	envDir  = "EMBEDDED_TEST_DIR"
	envAddr = "EMBEDDED_TEST_ADDR"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(envKind); kind != "" {
		serve(kind, os.Getenv(envDir), os.Getenv(envAddr))
	}
	os.Exit(m.Run())
}

// serve starts a server, prints where it listens, and waits for its end.
func serve(kind, dir, addr string) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var err error
	var at string
	switch kind {
	case "etcd":
		var e *embedded.Etcd
		if e, err = embedded.StartEtcd(context.Background(), embedded.EtcdOptions{Dir: dir, ClientAddr: addr, Log: log, UnsafeNoFsync: true}); err == nil {
			at = e.Endpoint()
		}
	case "nats":
		var n *embedded.NATS
		if n, err = embedded.StartNATS(context.Background(), embedded.NATSOptions{Dir: dir, Addr: addr, Log: log}); err == nil {
			at = n.URL()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(at)
	select {}
}
