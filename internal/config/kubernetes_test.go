package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/config"
)

func TestKubernetesSettings(t *testing.T) {
	pod := []string{"DYN_DISCOVERY_BACKEND=kubernetes", "POD_NAME=worker-0", "POD_NAMESPACE=serving", "POD_UID=0b7c", "KUBECONFIG=/k", "CONTAINER_NAME=engine-0", "DYN_KUBE_DISCOVERY_MODE=container"}
	agent, _, err := loadDynamod(t, nil, pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Kubernetes{
		KubernetesClient: config.KubernetesClient{Kubeconfig: "/k", Namespace: "serving", Mode: "container"},
		PodName:          "worker-0", PodUID: "0b7c", Container: "engine-0", PodInfo: "/etc/podinfo", LeaseTTL: 30 * time.Second,
	}
	if agent.Kubernetes != want || !agent.Discovery.InKubernetes() || agent.EmbedsEtcd() || agent.LeaseTTL() != 30*time.Second {
		t.Errorf("got %+v, embeds etcd %t, leases of %s", agent.Kubernetes, agent.EmbedsEtcd(), agent.LeaseTTL())
	}
	if err := agent.Validate(); err != nil {
		t.Error(err)
	}
	for wrong, environ := range map[string][]string{
		"etcd.endpoints: is set, but discovery.backend is kubernetes": append(pod[:1:1], "ETCD_ENDPOINTS=a:1"),
		"kubernetes.pod_uid: is empty":                                append(pod[:1:1], "POD_NAME=worker-0"),
		"kubernetes.container_name: is empty":                         append(pod[:4:4], pod[6]),
		"is no name of a Kubernetes namespace":                        append(pod[:1:1], "POD_NAMESPACE=A/b"),
		"kubernetes.lease_ttl: 1s is not between":                     append(pod[:1:1], "DYNAMOD_KUBERNETES_LEASE_TTL=1s"),
	} {
		cfg, _, err := loadDynamod(t, nil, environ, nil)
		if err == nil {
			err = cfg.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%v: got %v, want %q", environ, err, wrong)
		}
	}
	if cfg, _, err := loadDynamod(t, nil, nil, nil); err != nil || cfg.LeaseTTL() != cfg.Etcd.LeaseTTL {
		t.Errorf("leases without Kubernetes: %s, %v", cfg.LeaseTTL(), err)
	}
}
