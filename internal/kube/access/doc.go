// Package access makes clients of the Kubernetes API as kubectl and pods do: of a
// kubeconfig with all its ways to log in, or of the service account of a pod. It is the only
// package that links client-go, and does so only with the build tag kubernetes: a program
// without it has no use for those megabytes.
//
// [Client] returns a client, which needs no closing.
package access

// Config says which API server is meant.
type Config struct {
	// Kubeconfig is the path of a kubeconfig; empty means ~/.kube/config, or the service
	// account in a pod.
	Kubeconfig string
	Namespace  string // empty means that of the kubeconfig, or of the pod
}
