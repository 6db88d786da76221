package config

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// BackendKubernetes is the value of [Discovery.Backend] for the Kubernetes API.
const BackendKubernetes = "kubernetes"

// SchemeKubernetes is the address of the store in the Kubernetes API. The settings say where
// that is.
const SchemeKubernetes = "kubernetes://"

// KubernetesClient says how the Kubernetes API is reached.
type KubernetesClient struct {
	Kubeconfig string `mapstructure:"kubeconfig"`
	Namespace  string `mapstructure:"namespace"`
	// Mode is what counts as ready: pods, or containers.
	Mode string `mapstructure:"discovery_mode"`
}

// Kubernetes also says where in Kubernetes a node runs.
type Kubernetes struct {
	KubernetesClient `mapstructure:",squash"`
	PodName          string        `mapstructure:"pod_name"`
	PodUID           string        `mapstructure:"pod_uid"`
	Container        string        `mapstructure:"container_name"`
	PodInfo          string        `mapstructure:"podinfo"` // a directory
	LeaseTTL         time.Duration `mapstructure:"lease_ttl"`
}

// InKubernetes reports whether the Kubernetes API holds the state.
func (d Discovery) InKubernetes() bool { return d.Backend == BackendKubernetes }

// DefaultKubernetesTTL is the default of [Kubernetes.LeaseTTL].
const DefaultKubernetesTTL = 30 * time.Second

func kubernetesClientKeys() []Key {
	return []Key{
		{
			Name: "kubernetes.kubeconfig", Kind: KindPath, Default: "",
			Help:    "kubeconfig of the backend kubernetes; empty means that of kubectl or, in a pod, its service account",
			Aliases: []Alias{{Name: "KUBECONFIG"}},
		},
		{
			Name: "kubernetes.namespace", Kind: KindString, Default: "",
			Help:    "Kubernetes namespace of the cluster's objects; empty means that of the kubeconfig or of the pod",
			Aliases: []Alias{{Name: "POD_NAMESPACE"}},
		},
		{
			Name: "kubernetes.discovery_mode", Kind: KindString, Default: "pod", Choices: []string{"pod", "container"},
			Help:    "what has to be ready so that instances count: pods in EndpointSlices, or single containers",
			Aliases: []Alias{{Name: "DYN_KUBE_DISCOVERY_MODE"}},
		},
	}
}

func kubernetesKeys() []Key {
	return append(
		kubernetesClientKeys(),
		Key{
			Name: "kubernetes.pod_name", Kind: KindString, Default: "",
			Help:    "name of the pod in which this dynamod runs, from metadata.name; empty outside of pods",
			Aliases: []Alias{{Name: "POD_NAME"}},
		},
		Key{
			Name: "kubernetes.pod_uid", Kind: KindString, Default: "",
			Help:    "uid of the pod, from metadata.uid: what dynamod keeps in Kubernetes is deleted with the pod",
			Aliases: []Alias{{Name: "POD_UID"}},
		},
		Key{
			Name: "kubernetes.container_name", Kind: KindString, Default: "",
			Help:    "name of the container, for discovery_mode container",
			Aliases: []Alias{{Name: "CONTAINER_NAME"}},
		},
		Key{
			Name: "kubernetes.podinfo", Kind: KindPath, Default: "/etc/podinfo",
			Help: "directory whose files pod_name, pod_uid and pod_namespace, if they are there, come before these settings",
		},
		Key{
			Name: "kubernetes.lease_ttl", Kind: KindDuration, Default: DefaultKubernetesTTL,
			Help: "time to live of leases, in place of etcd.lease_ttl: each is renewed by a request after half of it",
		},
	)
}

// LeaseTTL returns the time to live of leases in the chosen backend.
func (d Dynamod) LeaseTTL() time.Duration {
	if d.Discovery.InKubernetes() {
		return d.Kubernetes.LeaseTTL
	}
	return d.Etcd.LeaseTTL
}

// kubernetes checks what belongs to the backend kubernetes.
func (v *validator) kubernetes(d Discovery, e EtcdClient, k Kubernetes) {
	if !d.InKubernetes() {
		return
	}
	if len(e.Endpoints) > 0 {
		v.wrong("etcd.endpoints", "is set, but discovery.backend is %s: choose one", BackendKubernetes)
	}
	if k.Mode == "container" && k.PodName != "" && k.Container == "" {
		v.wrong("kubernetes.container_name", "is empty, but kubernetes.discovery_mode is container")
	}
	if k.PodName != "" && k.PodUID == "" {
		v.wrong("kubernetes.pod_uid", "is empty, but kubernetes.pod_name is set: set POD_UID from metadata.uid")
	}
	if k.Namespace != "" && cluster.CheckNamespace(k.Namespace) != nil {
		v.wrong("kubernetes.namespace", "%q is no name of a Kubernetes namespace", k.Namespace)
	}
}

// kubernetesTTL checks the time to live of leases.
func (v *validator) kubernetesTTL(ttl time.Duration) {
	if ttl < 2*time.Second || ttl > time.Hour {
		v.wrong("kubernetes.lease_ttl", "%s is not between 2s and 1h", formatDuration(ttl))
	}
}
