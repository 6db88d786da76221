package clustertest_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/apiservertest"
	"github.com/dynctl/dynctl/internal/orphan"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// The real programs, built with the tag kubernetes, as the service account of the chart over
// a kube-apiserver. The test stands for kubelet and the EndpointSlice controller.
func TestProgramsOnKubernetes(t *testing.T) {
	server := apiservertest.Start(t)
	const ns = "serving"
	server.Namespace(t, ns)
	user, _ := server.Account(t, ns, true)
	kubeconfig := server.Kubeconfig(t, ns, user)

	p := &programs{t: t, bin: t.TempDir(), port: freePort(t)}
	build := exec.Command("go", "build", "-tags", "kubernetes", "-ldflags=-s -w", "-o", p.bin+"/", "./cmd/dynctl", "./cmd/dynamod")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	home := t.TempDir()
	secret := filepath.Join(home, "secret")
	p.env = []string{
		"HOME=" + home, "XDG_STATE_HOME=" + filepath.Join(home, "state"), "TERM=dumb", "KUBECONFIG=" + kubeconfig,
		"DYN_DISCOVERY_BACKEND=kubernetes", "DYNCTL_SECRET_FILE=" + secret, "DYNAMOD_SECRET_FILE=" + secret,
	}
	nats := freePort(t)
	first := startPod(t, p, "prefill-0", "--nats-listen=127.0.0.1:"+strconv.Itoa(nats), "--frontend-enabled=false", "--node-roles=prefill")
	storetest.Eventually(t, "the first node is up", func() bool { return strings.Contains(first.log(t), "node is up") })
	natsURL := "--nats-url=dynamod://127.0.0.1:" + strconv.Itoa(nats)
	front := startPod(t, p, "frontend-0", natsURL, "--frontend-port="+strconv.Itoa(p.port), "--cpu-devices=-1")
	second := startPod(t, p, "decode-0", natsURL, "--frontend-enabled=false", "--node-roles=decode")
	third := startPod(t, p, "decode-1", natsURL, "--frontend-enabled=false", "--node-roles=decode")
	storetest.Eventually(t, "all nodes are there", func() bool { return len(p.nodes()) == 4 })
	p.env = append(p.env, "NATS_SERVER=dynamod://127.0.0.1:"+strconv.Itoa(nats))

	ready := func(pods ...string) {
		t.Helper()
		all := []any{}
		for _, name := range pods {
			all = append(all, map[string]any{"addresses": []string{"10.0.0.1"}, "conditions": map[string]any{"ready": true}, "targetRef": map[string]any{"kind": "Pod", "name": name}})
		}
		slices := "/apis/discovery.k8s.io/v1/namespaces/" + ns + "/endpointslices"
		body := map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": all,
			"metadata": map[string]any{"name": "workers", "labels": map[string]string{kube.LabelBackend: "kubernetes", kube.LabelEnabled: "true"}},
		}
		server.Create(t, slices, body)
		server.Do(t, http.MethodPatch, slices+"/workers", "application/merge-patch+json", map[string]any{"endpoints": all}, nil)
	}
	ready("frontend-0", "prefill-0", "decode-0", "decode-1")
	p.must(0, "up", "--prefill", "1", "--decode", "2")
	question := strings.Repeat("tell me what moves between the workers ", 20)
	want, err := p.ask(question, 12)
	if err != nil || want == "" {
		t.Fatalf("first answer: %q %v", want, err)
	}
	if ws := p.workers(); len(ws) != 3 || slices.ContainsFunc(ws, func(w cluster.Worker) bool { return strings.HasPrefix(w.Node, "frontend-0") }) {
		t.Errorf("workers: %+v", ws)
	}
	if out := p.must(0, "doctor"); !strings.Contains(out, "the Kubernetes API, answer") || strings.Contains(out, "etcd") {
		t.Errorf("doctor: %s", out)
	}
	var object kube.Worker
	admin := server.Client(t, ns, "")
	if err := admin.Get(t.Context(), kube.WorkerMetadata, "decode-0", &object); err != nil {
		t.Fatal(err)
	}
	path := "dynamo/decode/generate/" + kube.InstanceID("decode-0").String()
	if !bytes.Contains(object.Spec.Data, []byte(path)) {
		t.Errorf("no %s in %s", path, object.Spec.Data)
	}

	// A pod that is not ready gets no requests.
	ready("frontend-0", "prefill-0", "decode-1")
	storetest.Eventually(t, "the other worker answers alone", func() bool {
		got, err := p.ask(question, 12)
		return err == nil && got == want
	})
	ready("frontend-0", "prefill-0", "decode-0", "decode-1")
	if out := p.must(0, "drain", "worker-2", "--deadline", "1m"); !strings.Contains(out, "safe to stop") {
		t.Errorf("drain: %s", out)
	}
	if got, err := p.ask(question, 12); err != nil || got != want {
		t.Errorf("while a worker is drained: %q %v, want %q", got, err, want)
	}
	p.must(0, "resume", "worker-2")

	// Without the API server, requests are served on with what is known, and pods stay ready:
	// they would all be out of discovery when it is back.
	status := p.nodes()[0].StatusURL
	server.Stop(t)
	for range 3 {
		if got, err := p.ask(question, 12); err != nil || got != want {
			t.Errorf("without the API server: %q %v, want %q", got, err, want)
		}
	}
	resp, err := http.Get(status + "/health")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("health without the API server: %s", resp.Status)
	}
	server.Resume(t)
	storetest.Eventually(t, "the nodes are there after the outage", func() bool {
		out, code := p.run("ps", "--nodes", "-o", "name")
		return code == 0 && strings.Count(out, "\n") == 4
	})

	// A pod that dies is gone when it is not ready any more.
	if err := third.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ready("frontend-0", "prefill-0", "decode-0")
	if got, err := p.ask(question, 12); err != nil || got != want {
		t.Errorf("after the death of a pod: %q %v, want %q", got, err, want)
	}
	for _, pod := range []*podProcess{second, front, first} {
		if err := pod.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-pod.ended:
		case <-t.Context().Done():
		}
		if pod.err != nil {
			t.Errorf("%s: %v\n%s", pod.name, pod.err, pod.log(t))
		}
	}
}

// podProcess is a dynamod that believes to be in a pod.
type podProcess struct {
	name  string
	cmd   *exec.Cmd
	out   string // file with its log
	ended chan struct{}
	err   error // valid once ended is closed
}

func startPod(t *testing.T, p *programs, name string, args ...string) *podProcess {
	t.Helper()
	args = append(args, "--node-name="+name, "--status-listen=127.0.0.1:0")
	pod := &podProcess{name: name, cmd: exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(p.bin, "dynamod"), args...), out: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	pod.cmd.Env = append([]string{"POD_NAME=" + name, "POD_NAMESPACE=serving", fmt.Sprintf("POD_UID=00000000-0000-0000-0000-%012x", uint64(kube.InstanceID(name))>>8)}, p.env...)
	file, err := os.Create(pod.out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pod.cmd.Stdout, pod.cmd.Stderr = file, file
	if err := orphan.Start(pod.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(pod.ended)
		pod.err = pod.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = pod.cmd.Process.Kill() // it may have ended
		<-pod.ended
		if t.Failed() {
			t.Logf("%s:\n%s", name, pod.log(t))
		}
	})
	return pod
}

func (p *podProcess) log(t *testing.T) string {
	raw, err := os.ReadFile(p.out)
	if err != nil {
		t.Error(err)
	}
	return string(raw)
}
