//go:build kubernetes

package dial

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/kube"
)

// kubeconfig writes a kubeconfig for a server, and returns its path.
func kubeconfig(t *testing.T, server, namespace string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server, "insecure-skip-tls-verify": true}}},
		"users":    []any{map[string]any{"name": "c", "user": map[string]any{"token": "T"}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "c", "namespace": namespace}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A kubeconfig says where the API is, who asks, and in which namespace, unless that is set.
func TestKubernetes(t *testing.T) {
	for namespace, want := range map[string]string{"": "serving", "other": "other"} {
		for _, merged := range []bool{false, true} {
			// A server for each: requests of a store that was closed may come late.
			asked := make(chan string, 100)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case asked <- r.Header.Get("Authorization") + " " + r.URL.Path:
				default:
				}
				http.Error(w, "no", http.StatusForbidden)
			}))
			defer server.Close()
			file := kubeconfig(t, server.URL, "serving")
			if merged {
				file = filepath.Join(t.TempDir(), "missing") + string(os.PathListSeparator) + file
			}
			s, err := kubernetes(config.Kubernetes{KubernetesClient: config.KubernetesClient{Kubeconfig: file, Namespace: namespace}}, false, quiet)
			if err != nil {
				t.Fatalf("merged %t: %v", merged, err)
			}
			if got := <-asked; !strings.HasPrefix(got, "Bearer T /apis/") || !strings.Contains(got, "/namespaces/"+want+"/") {
				t.Errorf("merged %t: asked for %s, want namespace %s", merged, got, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := kubernetes(config.Kubernetes{KubernetesClient: config.KubernetesClient{Kubeconfig: filepath.Join(t.TempDir(), "none")}}, false, quiet); err == nil {
		t.Error("a kubeconfig that does not exist is accepted")
	}
}

// Files of the downward API come before settings.
func TestPodOf(t *testing.T) {
	dir := t.TempDir()
	c := config.Kubernetes{PodName: "set", PodUID: "u", PodInfo: dir}
	if pod, err := podOf(c); err != nil || pod.Name != "set" || pod.UID != "u" {
		t.Errorf("without files: %+v, %v", pod, err)
	}
	for name, text := range map[string]string{"pod_name": "worker-0\n", "pod_namespace": "serving", "pod_uid": "0b7c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := kube.Pod{Name: "worker-0", Namespace: "serving", UID: "0b7c"}
	if pod, err := podOf(c); err != nil || pod != want {
		t.Errorf("with files: %+v, %v", pod, err)
	}
	if pod, err := podOf(config.Kubernetes{}); err != nil || pod.In() {
		t.Errorf("outside of pods: %+v, %v", pod, err)
	}
	if _, err := podOf(config.Kubernetes{PodName: "a"}); err == nil {
		t.Error("a pod without a uid is accepted")
	}
}
