package dialtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/orphan"
)

// Access says how a server lets clients in.
type Access struct {
	// Folder, if set, has the certificates that [NewFolder] makes. The server speaks TLS.
	Folder *certs.Folder
	// Mutual asks clients for certificates.
	Mutual bool
	// User and Password are asked for, if set. etcd has its root by them.
	User, Password string

	// The rest is for NATS only.
	Token string
	NKey  string // a seed
	Creds bool   // a credentials file, which the server makes
}

// NewFolder makes an authority and the certificates "server" and "client", as dynctl certs
// init does.
func NewFolder(t testing.TB) *certs.Folder {
	t.Helper()
	f := &certs.Folder{Dir: t.TempDir()}
	_, err := f.Init(10)
	for _, r := range []certs.Request{{Name: "server", Days: 1}, {Name: "client", Client: true, Days: 1}} {
		if err == nil {
			_, err = f.Issue(r)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// file is the path of a file of the access's folder.
func (a Access) file(name string) string { return filepath.Join(a.Folder.Dir, name) }

// files are those of the settings of a client: authority, certificate and key.
func (a Access) files() (ca, cert, key string) {
	if a.Folder != nil {
		ca = a.file("ca.pem")
	}
	if a.Mutual {
		cert, key = a.file("client.pem"), a.file("client-key.pem")
	}
	return ca, cert, key
}

// process is a program that may be killed and started again.
type process struct {
	t    testing.TB
	path string
	args []string
	addr string // at which it listens

	cmd   *exec.Cmd
	ended chan struct{}
}

// program finds a program, or skips the test.
func program(t testing.TB, variable, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv(variable), name))
	if err != nil {
		t.Skipf("no %s program; install Debian's %s or set %s: %v", name, pkg, variable, err)
	}
	return path
}

const patience = time.Minute

// start starts the program and waits until it listens.
func (p *process) start() {
	p.t.Helper()
	p.launch()
	for deadline := time.Now().Add(patience); ; {
		c, err := net.DialTimeout("tcp", p.addr, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-p.ended: // somebody may have the address for a moment
			p.launch()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not listen at %s: %v", p.path, p.addr, err)
		}
	}
}

func (p *process) launch() {
	p.t.Helper()
	cmd, ended := exec.Command(p.path, p.args...), make(chan struct{})
	cmd.Stderr = p.t.Output()
	if err := orphan.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	p.cmd, p.ended = cmd, ended
}

// Kill kills the server and waits for its end. It keeps its data.
func (p *process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.ended
}

// Restart starts the server again, at the same address and with its data.
func (p *process) Restart() {
	p.t.Helper()
	p.Kill()
	p.start()
}

// given are the ports that freeAddr has given out.
var given sync.Map

// freeAddr is a loopback address for a server that will be restarted on it. Its port is below
// those that systems give to outgoing connections, one of which could have it in between.
func freeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(12000))
		if _, again := given.LoadOrStore(addr, true); again {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}
