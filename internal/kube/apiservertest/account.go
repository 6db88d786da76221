package apiservertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"text/template"
)

// Account creates the service account and the role of the Helm chart in a namespace, with
// a planner that acts or does not. It returns the account's user, and what the role allows
// as "verb resource".
func (s *Server) Account(t *testing.T, namespace string, acts bool) (user string, may map[string]bool) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository(t), "configs", "kubernetes", "chart", "templates", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	values := map[string]any{
		"Release": map[string]string{"Name": "dynctl", "Namespace": namespace},
		"Values":  map[string]any{"discovery": map[string]string{"mode": "pod"}, "planner": map[string]bool{"act": acts}},
	}
	if err := template.Must(template.New("rbac").Parse(string(raw))).Execute(&text, values); err != nil {
		t.Fatal(err)
	}
	may = map[string]bool{}
	for _, doc := range Manifests(t, text.Bytes()) {
		switch doc["kind"] {
		case "ServiceAccount":
			s.Create(t, "/api/v1/namespaces/"+namespace+"/serviceaccounts", doc)
		case "RoleBinding":
			s.Create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings", doc)
		case "Role":
			s.Create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/roles", doc)
			rules, _ := doc["rules"].([]any)
			for _, rule := range rules {
				r, _ := rule.(map[string]any)
				verbs, _ := r["verbs"].([]any)
				resources, _ := r["resources"].([]any)
				for _, verb := range verbs {
					for _, resource := range resources {
						may[fmt.Sprint(verb, " ", resource)] = true
					}
				}
			}
		}
	}
	if len(may) == 0 {
		t.Fatal("the chart's role allows nothing")
	}
	return "system:serviceaccount:" + namespace + ":dynctl", may
}
