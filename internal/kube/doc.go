// Package kube speaks the Kubernetes API as the store in Kubernetes needs it: custom
// resources, merge patches, server-side apply, and lists that are followed by watches. It
// also knows what NVIDIA Dynamo keeps in its DynamoWorkerMetadata objects, and how it makes
// instance ids of their names.
//
// Start with [Client] and [Follower]; [Pod] says which pod this process is in. The package
// sends JSON over an HTTP client that it is given, so that it links no library of
// Kubernetes. Package access makes such a client of a kubeconfig.
package kube
