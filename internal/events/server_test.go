package events_test

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/orphan"
)

// The server runs in a process of its own, which is this test binary again: so it
// can be killed and frozen, and its goroutines are not taken for ours.
const (
	serverDir  = "EVENTS_TEST_SERVER_DIR"
	serverPort = "EVENTS_TEST_SERVER_PORT"
	serverUser = "EVENTS_TEST_SERVER_USER" // also the password; empty: none needed
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverDir); dir != "" {
		if err := serveNATS(dir, os.Getenv(serverPort)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveNATS serves until its input ends.
func serveNATS(dir, portText string) error {
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      port,
		NoLog:     true,
		NoSigs:    true,
		JetStream: true,
		// By default the limit is three quarters of the free space, and journals reserve theirs.
		JetStreamMaxStore: 1 << 40,
		StoreDir:          dir,
		MaxPayload:        1 << 20,
		Username:          os.Getenv(serverUser),
		Password:          os.Getenv(serverUser),
	})
	if err != nil {
		return err
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("nats server not ready")
	}
	fmt.Println(s.ClientURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return err
}

const anyPort = -1

type natsServer struct {
	t     testing.TB
	user  string
	dir   string
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// startNATS starts a server with JetStream on dir.
func startNATS(t testing.TB, dir string, port int) *natsServer {
	t.Helper()
	s := &natsServer{t: t, dir: dir}
	s.start(port)
	t.Cleanup(s.kill)
	return s
}

func (s *natsServer) start(port int) {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), serverDir+"="+s.dir, serverPort+"="+strconv.Itoa(port), serverUser+"="+s.user)
	s.cmd.Stderr = os.Stderr
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := orphan.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	s.stdin = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.kill()
		s.t.Fatalf("nats server did not start: %v", err)
	}
	s.url = strings.TrimSpace(line)
}

func (s *natsServer) port() int {
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// stop ends the server in order.
func (s *natsServer) stop() {
	s.stdin.Close()
	s.cmd.Wait()
}

// kill ends it at once.
func (s *natsServer) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// restart starts it again on the same directory and port.
func (s *natsServer) restart() {
	s.t.Helper()
	s.start(s.port())
}

func (s *natsServer) freeze() { s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *natsServer) thaw()   { s.cmd.Process.Signal(syscall.SIGCONT) }
