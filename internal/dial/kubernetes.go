//go:build kubernetes

package dial

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/access"
	"github.com/dynctl/dynctl/internal/store"
)

// kubernetes returns a store in the Kubernetes API.
func kubernetes(c config.Kubernetes, agent bool, log *slog.Logger) (store.Store, error) {
	client, pod, err := inKubernetes(c)
	if err != nil {
		return nil, err
	}
	return store.NewKubernetes(store.KubernetesConfig{Client: client, Pod: pod, Agent: agent, MinTTL: c.LeaseTTL}, log)
}

// Kubernetes returns a client of the Kubernetes API, whose idle connections the caller closes.
func Kubernetes(c config.Kubernetes) (*kube.Client, error) {
	client, _, err := inKubernetes(c)
	return client, err
}

// inKubernetes returns a client, and the pod of this process.
func inKubernetes(c config.Kubernetes) (*kube.Client, kube.Pod, error) {
	pod, err := podOf(c)
	if err != nil {
		return nil, pod, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	client, err := access.Client(access.Config{Kubeconfig: c.Kubeconfig, Namespace: pod.Namespace})
	if err != nil {
		return nil, pod, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	return client, pod, nil
}

// podOf returns the pod of this process. Files of the downward API come before settings.
func podOf(c config.Kubernetes) (kube.Pod, error) {
	pod := kube.Pod{Name: c.PodName, Namespace: c.Namespace, UID: c.PodUID, Mode: c.Mode, Container: c.Container}
	if c.PodInfo == "" {
		return pod, pod.Check()
	}
	for name, into := range map[string]*string{"pod_name": &pod.Name, "pod_namespace": &pod.Namespace, "pod_uid": &pod.UID} {
		raw, err := os.ReadFile(filepath.Join(c.PodInfo, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pod, err
		}
		*into = cmp.Or(strings.TrimSpace(string(raw)), *into)
	}
	return pod, pod.Check()
}
