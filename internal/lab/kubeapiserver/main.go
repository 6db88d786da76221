// Command kubeapiserver is the kube-apiserver of Kubernetes, as it is, for tests. It is in a
// module of its own, whose thousand packages nothing else needs:
//
//	make kube-apiserver
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
