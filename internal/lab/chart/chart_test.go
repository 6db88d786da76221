package chart

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/kube/apiservertest"
)

var update = flag.Bool("update", false, "write the plain manifests anew")

var root = filepath.Join("..", "..", "..", "configs", "kubernetes")

// values reads the chart's values.
func values(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "chart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// render renders all templates. They use no function that Helm adds to those of Go.
func render(t *testing.T, values map[string]any) []byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "chart", "templates", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("templates: %v, %v", paths, err)
	}
	data := map[string]any{"Release": map[string]any{"Name": "dynctl", "Namespace": "dynctl"}, "Values": values}
	var out bytes.Buffer
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := template.Must(template.New(path).Option("missingkey=error").Parse(string(raw))).Execute(&text, data); err != nil {
			t.Fatal(err)
		}
		if body := strings.TrimPrefix(strings.TrimSpace(text.String()), "---\n"); body != "" {
			fmt.Fprintf(&out, "---\n%s\n", body)
		}
	}
	return out.Bytes()
}

const heading = "# Made from the chart in configs/kubernetes/chart with its default values; make docs writes it\n# anew. Change image, and whatever else its values.yaml explains.\n"

// The plain manifests are what the chart makes by default.
func TestPlainManifests(t *testing.T) {
	var crds bytes.Buffer
	paths, err := filepath.Glob(filepath.Join(root, "chart", "crds", "*.yaml"))
	if err != nil || len(paths) != 2 {
		t.Fatalf("custom resources: %v, %v", paths, err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		crds.WriteString("---\n")
		crds.Write(raw)
	}
	for name, text := range map[string][]byte{"crds.yaml": crds.Bytes(), "dynctl.yaml": render(t, values(t))} {
		path := filepath.Join(root, name)
		want := append([]byte(heading), text...)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the chart makes: run make docs", name)
		}
	}
}

// podOf returns the containers' arguments and environment of a StatefulSet.
func podOf(t *testing.T, doc map[string]any) (args, environ []string) {
	t.Helper()
	spec := doc["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	container := spec["containers"].([]any)[0].(map[string]any)
	for _, a := range container["args"].([]any) {
		args = append(args, fmt.Sprint(a))
	}
	of := map[string]string{"metadata.name": "dynctl-decode-0", "metadata.namespace": "dynctl", "metadata.uid": "0b7c", "status.podIP": "10.1.2.3"}
	all, _ := container["env"].([]any)
	for _, e := range all {
		entry := e.(map[string]any)
		value, ok := entry["value"]
		if !ok {
			from := entry["valueFrom"].(map[string]any)
			if ref, ok := from["secretKeyRef"].(map[string]any); ok {
				value = fmt.Sprint("the ", ref["key"], " of ", ref["name"])
			} else {
				value = of[from["fieldRef"].(map[string]any)["fieldPath"].(string)]
			}
		}
		environ = append(environ, fmt.Sprintf("%s=%v", entry["name"], value))
	}
	for i := range args { // as kubelet does
		for _, e := range environ {
			name, value, _ := strings.Cut(e, "=")
			args[i] = strings.ReplaceAll(args[i], "$("+name+")", value)
		}
	}
	return args, environ
}

// What the pods are told are settings of dynamod, and valid together.
func TestSettingsOfPods(t *testing.T) {
	for _, url := range []string{"", "nats://elsewhere:4222"} {
		v := values(t)
		v["nats"].(map[string]any)["url"], v["allowUnauthenticated"] = url, url != ""
		sets := map[string][]string{}
		for _, doc := range apiservertest.Manifests(t, render(t, v)) {
			name := fmt.Sprint(doc["metadata"].(map[string]any)["name"])
			if doc["kind"] != "StatefulSet" {
				continue
			}
			args, environ := podOf(t, doc)
			sets[name] = args
			if name == "dynctl-nats" {
				continue
			}
			cfg := load(t, args, environ)
			if !cfg.Discovery.InKubernetes() || cfg.Kubernetes.PodName != "dynctl-decode-0" || cfg.Kubernetes.PodUID != "0b7c" || cfg.Node.AdvertiseHost != "10.1.2.3" || !cfg.NATS.External() {
				t.Errorf("%s: %+v %+v", name, cfg.Kubernetes, cfg.Node)
			}
			if key := cfg.Frontend.APIKey != ""; key != (name == "dynctl-frontend" && url == "") {
				t.Errorf("%s has a key of clients: %t", name, key)
			}
			if frontend := name == "dynctl-frontend"; cfg.Frontend.Enabled != frontend || (cfg.CPU.Devices < 0) != frontend {
				t.Errorf("%s: frontend %t, devices %d", name, cfg.Frontend.Enabled, cfg.CPU.Devices)
			}
		}
		want := []string{"dynctl-decode", "dynctl-frontend", "dynctl-nats", "dynctl-prefill"}
		if url != "" {
			want = slices.Delete(want, 2, 3)
		}
		if got := slices.Sorted(maps.Keys(sets)); !slices.Equal(got, want) {
			t.Errorf("StatefulSets with NATS at %q: %v, want %v", url, got, want)
		}
	}
}

// A kube-apiserver accepts all of it, with nothing that it does not know.
func TestManifestsAreValid(t *testing.T) {
	server := apiservertest.Start(t)
	server.Namespace(t, "dynctl")
	container := values(t)
	container["discovery"].(map[string]any)["mode"] = "container"
	container["planner"].(map[string]any)["act"] = true
	container["modelsClaim"], container["roles"] = "models", []any{"prefill", "encode", "decode", "frontend"}
	plural := map[string]string{
		"ServiceAccount": "/api/v1/namespaces/dynctl/serviceaccounts", "Service": "/api/v1/namespaces/dynctl/services",
		"StatefulSet": "/apis/apps/v1/namespaces/dynctl/statefulsets", "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/dynctl/roles",
		"RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/dynctl/rolebindings",
	}
	for _, v := range []map[string]any{values(t), container} {
		for _, doc := range apiservertest.Manifests(t, render(t, v)) {
			path, ok := plural[fmt.Sprint(doc["kind"])]
			if !ok {
				t.Fatalf("kind %v is not expected", doc["kind"])
			}
			server.Do(t, http.MethodPost, path+"?fieldValidation=Strict&dryRun=All", "application/json", doc, nil)
		}
	}
}

// load reads a configuration as dynamod does.
func load(t *testing.T, args, environ []string) config.Dynamod {
	t.Helper()
	flags := pflag.NewFlagSet("dynamod", pflag.ContinueOnError)
	config.DynamodTable().AddFlags(flags, "")
	if err := flags.Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	cfg, origins, err := config.LoadDynamod(config.Input{
		Flags: flags, Environ: append([]string{"HOME=/"}, environ...),
		ReadFile: func(path string) ([]byte, error) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
	})
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		t.Fatalf("%q with %q: %v", args, environ, err)
	}
	if w := origins.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	return cfg
}

// Encode workers have a StatefulSet when a chart's roles name them: nodes that take nothing else,
// with resources of their own.
func TestEncodeRole(t *testing.T) {
	v := values(t)
	v["roles"] = []any{"prefill", "encode", "decode", "frontend"}
	v["encode"].(map[string]any)["replicas"] = 3
	sets := map[string]map[string]any{}
	dec := yaml.NewDecoder(bytes.NewReader(render(t, v)))
	for {
		var doc map[string]any
		if dec.Decode(&doc) != nil {
			break
		}
		if doc["kind"] == "StatefulSet" {
			sets[doc["metadata"].(map[string]any)["name"].(string)] = doc
		}
	}
	set := sets["dynctl-encode"]
	if set == nil || sets["dynctl-decode"] == nil {
		t.Fatalf("stateful sets %v", slices.Sorted(maps.Keys(sets)))
	}
	args, _ := podOf(t, set)
	if !slices.Contains(args, "--node-roles=encode") || !slices.Contains(args, "--frontend-enabled=false") {
		t.Errorf("arguments %v", args)
	}
	spec := set["spec"].(map[string]any)
	pod := spec["template"].(map[string]any)["spec"].(map[string]any)
	limits := pod["containers"].([]any)[0].(map[string]any)["resources"].(map[string]any)["limits"].(map[string]any)
	if spec["replicas"] != 3 || limits["memory"] != "4Gi" {
		t.Errorf("%v replicas, limits %v", spec["replicas"], limits)
	}
}

// A planner that acts may read and write the number of prefill and decode pods, which the chart then does not
// set, and nothing else of them.
func TestPlannerActs(t *testing.T) {
	for _, act := range []bool{false, true} {
		v := values(t)
		v["planner"].(map[string]any)["act"] = act
		for _, doc := range apiservertest.Manifests(t, render(t, v)) {
			name := fmt.Sprint(doc["metadata"].(map[string]any)["name"])
			switch doc["kind"] {
			case "Role":
				rules := fmt.Sprint(doc["rules"])
				if strings.Contains(rules, "[dynctl-prefill dynctl-decode] resources:[statefulsets/scale] verbs:[get patch]") != act || strings.Contains(rules, "statefulsets]") {
					t.Errorf("act %t: %s", act, rules)
				}
			case "StatefulSet":
				_, fixed := doc["spec"].(map[string]any)["replicas"]
				if planned := name == "dynctl-prefill" || name == "dynctl-decode"; fixed == (planned && act) {
					t.Errorf("act %t: %s has replicas: %t", act, name, fixed)
				}
				if name == "dynctl-nats" {
					continue
				}
				args, environ := podOf(t, doc)
				p := load(t, args, environ).Planner
				if (p.Mode == "act") != act || (p.Connector == config.ConnectorKubernetes) != act || (p.Devices == 8) != act || p.KubernetesPrefill != "statefulsets.apps/dynctl-prefill" || p.KubernetesDecode != "statefulsets.apps/dynctl-decode" {
					t.Errorf("act %t: %s: %+v", act, name, p)
				}
			}
		}
	}
}
