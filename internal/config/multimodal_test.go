package config_test

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// The endpoint of the encode workers is that of the namespace unless it is named in full;
// anything else is refused at the start, with the variable that says it.
func TestEncodeEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"": "dyn://west.encode.generate", "dyn://dynamo.encode.generate": "dyn://dynamo.encode.generate", "dyn://a.b.tower.embed": "dyn://a.b.tower.embed",
		"http://encode:1": "", "dynamo.encode.generate": "", "dyn://encode.generate": "", "dyn://Dynamo.encode.generate": "", "dyn://": "", "encode": "",
	} {
		cfg, origins, err := loadDynamod(t, nil, []string{"DYN_NAMESPACE=west", "ENCODE_ENDPOINT=" + text}, nil)
		if err == nil {
			err = origins.Locate(cfg.Validate())
		}
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), `ENCODE_ENDPOINT: multimodal.encode_endpoint: "`+text+`" is not dyn://namespace.component.endpoint`) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		got, e := cfg.Multimodal.Encode(cfg.Namespace)
		if err != nil || e != nil || got.String() != want || len(origins.Warnings()) > 0 {
			t.Errorf("%q is %s, %v %v %v", text, got, err, e, origins.Warnings())
		}
	}
	cfg, _, err := loadDynamod(t, []string{"--multimodal-encode-endpoint=dyn://a.encode.generate"}, nil, nil)
	if err != nil || cfg.Multimodal.EncodeEndpoint != "dyn://a.encode.generate" {
		t.Errorf("by a flag: %q, %v", cfg.Multimodal.EncodeEndpoint, err)
	}
}

// A node may prefer workers of every role.
func TestNodeRoles(t *testing.T) {
	for _, r := range cluster.Roles {
		cfg, _, err := loadDynamod(t, []string{"--node-roles=" + string(r)}, nil, nil)
		if err != nil || len(cfg.Node.Roles) != 1 || cfg.Node.Roles[0] != string(r) {
			t.Errorf("%s: %q, %v", r, cfg.Node.Roles, err)
		}
	}
	if _, _, err := loadDynamod(t, nil, []string{"DYNAMOD_NODE_ROLES=cook"}, nil); err == nil || !strings.Contains(err.Error(), "prefill, decode, encode") {
		t.Errorf("another role: %v", err)
	}
}
