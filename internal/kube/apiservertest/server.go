// Package apiservertest runs a real kube-apiserver for tests, over an etcd in this process,
// with RBAC and without any controller or kubelet: tests create pods, EndpointSlices and
// service accounts themselves.
//
// Start with [Start]. The package is for tests only.
package apiservertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/patience"
)

// Binary is the variable with the path of kube-apiserver; "make kube-apiserver" builds it.
const Binary = "DYNCTL_KUBE_APISERVER"

// adminToken is that of a user who may do everything.
const adminToken = "admin"

// Server is a running kube-apiserver.
type Server struct {
	URL    string
	ca     []byte
	binary string
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
	log    string
}

// Start starts a server with the custom resources of this repository. It skips the test if there is no
// kube-apiserver.
func Start(t *testing.T) *Server {
	t.Helper()
	binary := os.Getenv(Binary)
	if binary == "" {
		t.Skipf("needs a kube-apiserver: make kube-apiserver, and its path in %s", Binary)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	etcd, err := embedded.StartEtcd(ctx, embedded.EtcdOptions{
		Dir: t.TempDir(), ClientAddr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), UnsafeNoFsync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	dir := t.TempDir()
	port := freePort(t)
	key := filepath.Join(dir, "sa.key")
	writeKey(t, key)
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(adminToken+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: "https://127.0.0.1:" + port, binary: binary, log: filepath.Join(dir, "apiserver.log")}
	s.args = []string{
		"--etcd-servers=http://" + etcd.Endpoint(), "--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + dir,
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--service-account-issuer=https://test", "--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key, "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
		"--shutdown-delay-duration=0",
	}
	t.Cleanup(func() { s.Stop(t) })
	s.Resume(t)
	if s.ca, err = os.ReadFile(filepath.Join(dir, "apiserver.crt")); err != nil {
		t.Fatal(err)
	}
	s.install(t)
	return s
}

// Resume starts the server again after Stop, and waits until it is ready.
func (s *Server) Resume(t *testing.T) {
	t.Helper()
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s.cmd = exec.Command(s.binary, s.args...) //nolint:gosec // the test's own
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	if err := orphan.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	s.exited = make(chan struct{})
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // how it ends is in its log
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 5 * time.Second} //nolint:gosec // its certificate is not read yet
	defer client.CloseIdleConnections()
	for end := time.Now().Add(3 * patience.Soon); ; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-s.exited:
			t.Fatalf("kube-apiserver has ended:\n%s", s.tail())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("kube-apiserver is not ready:\n%s", s.tail())
		}
	}
}

// Stop kills the server. Its etcd stays.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.exited
	s.cmd = nil
}

func (s *Server) tail() string {
	raw, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-4000):])
}

// Client returns a client of a namespace for a user, that of a service account as
// system:serviceaccount:NAMESPACE:NAME. An empty user may do everything.
func (s *Server) Client(t *testing.T, namespace, user string) *kube.Client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ca) {
		t.Fatal("the certificate of kube-apiserver is not PEM")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &kube.Client{HTTP: &http.Client{Transport: &login{transport, user}}, Server: s.URL, Namespace: namespace}
}

// login is a transport with credentials.
type login struct {
	next http.RoundTripper
	user string
}

// RoundTrip implements [http.RoundTripper].
func (l *login) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if l.user != "" {
		r.Header.Set("Impersonate-User", l.user)
		r.Header.Set("Impersonate-Group", "system:authenticated")
	}
	return l.next.RoundTrip(r)
}

// Kubeconfig writes a kubeconfig for a user of a namespace, and returns its path.
func (s *Server) Kubeconfig(t *testing.T, namespace, user string) string {
	t.Helper()
	who := map[string]any{"token": adminToken}
	if user != "" {
		who["as"], who["as-groups"] = user, []string{"system:authenticated"}
	}
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{map[string]any{"name": "test", "cluster": map[string]any{"server": s.URL, "certificate-authority-data": s.ca}}},
		"users":    []any{map[string]any{"name": "test", "user": who}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test", "namespace": namespace}}},
	}
	raw, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Create creates an object of any kind at a path of the API, and returns its uid. That it
// exists already is fine.
func (s *Server) Create(t *testing.T, path string, object any) (uid string) {
	t.Helper()
	var made kube.Object
	s.Do(t, http.MethodPost, path, "application/json", object, &made)
	return made.Metadata.UID
}

// Do sends a request of the user who may do everything.
func (s *Server) Do(t *testing.T, method, path, content string, object, into any) {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", content)
	resp, err := s.Client(t, "default", "").HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusConflict {
		t.Fatalf("%s %s: %s: %s", method, path, resp.Status, raw)
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
}

// Manifests reads the documents of YAML.
func Manifests(t *testing.T, text []byte) (found []map[string]any) {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	for {
		var doc map[string]any
		switch err := dec.Decode(&doc); {
		case err == io.EOF:
			return found
		case err != nil:
			t.Fatal(err)
		case doc != nil:
			found = append(found, doc)
		}
	}
}

// Namespace creates a namespace, and returns its name.
func (s *Server) Namespace(t *testing.T, name string) string {
	t.Helper()
	s.Create(t, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}})
	return name
}

// install installs the custom resources, and waits until they are served.
func (s *Server) install(t *testing.T) {
	t.Helper()
	for _, name := range []string{"records", "dynamoworkermetadatas"} {
		raw, err := os.ReadFile(filepath.Join(repository(t), "configs", "kubernetes", "chart", "crds", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range Manifests(t, raw) {
			s.Create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", doc)
		}
	}
	admin := s.Client(t, "default", "")
	for _, r := range []kube.Resource{kube.Records, kube.WorkerMetadata} {
		for end := time.Now().Add(patience.Soon); ; time.Sleep(20 * time.Millisecond) {
			err := admin.Probe(t.Context(), r)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
}

// repository is the directory of go.mod.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the test")
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func writeKey(t *testing.T, path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(fmt.Errorf("write the key: %w", err))
	}
}
